"""`POST /api/v1/route`: choose the engine for a request. `/api/v1/route/batch` does so for several requests."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import msgspec

from gateway.api.fleet_visibility import may_see_load, witness_of
from gateway.api.idempotent_requests import RepeatedRequests
from gateway.api.load_instructions import instructed, instruction_of, loads_for
from gateway.api.route_request import (
    EngineAddress,
    RoutePair,
    RouteRequest,
    address_of,
    endpoint_of,
    prompt_of,
    read,
    read_at_once,
    read_batch,
    route_pair,
)
from gateway.api.untracked_requests import ReportingKeys, UnreportedHolds, UntrackedRequests, estimated_life_s
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.contracts.stored_decision import ServiceStory
from gateway.peers.links.request_claims import PENDING, RECALL, RECALL_S
from gateway.pools.pool.kv_load import order_on
from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.pools.pool.service import reject_if_observing
from gateway.requests.affinity import affinity_of
from gateway.requests.caller_facts import API, CallerFacts, DecisionCaller, with_fields
from gateway.requests.formats.prompt import Prompt
from gateway.requests.gateway_request import GatewayRequest, gateway_request
from gateway.requests.lifecycle import RequestLifecycle
from gateway.requests.prompt_keys import KeyedPrompt, PromptKeys, needs_tokenizer
from gateway.requests.rejections import rejection
from gateway.server.http.http_exchange import Exchange, while_connected
from gateway.server.http.openai_error import ApiError
from gateway.server.http.request_head import RequestHead
from gateway.server.http.sync_fast_path import NO_WAIT, ORIGINAL_PATH, KnownHead
from routing.cost.cost_model import PrefillCost
from routing.values.decision import Candidate, Rejected
from routing.values.reasons import NO_ENGINE

if TYPE_CHECKING:
    from gateway.gateway import Gateway
    from gateway.pools.pool.live_pool import LivePool
    from kvstore.connector.engine_params import LoadInstruction


class RouteAnswer(msgspec.Struct, frozen=True, gc=False):
    """One decision, with times in seconds. At `expires_at` (unix seconds) the reservation is released at the latest.

    `reason`, `predicted_hit_tokens`, `compute_s`, and `candidates` reveal what engines have cached. So do waits, which
    include the caller's own reservations. If tenants share caches, these fields are omitted, unless the key has the
    scope manage. `predicted_hit_tokens` and `compute_s` are kept if the request has a cache salt.

    Merge `body` into the request body that is sent to the engine; it also instructs the engine's KV connector. If
    prefill and decode are disaggregated, `engine` prefills and `pair` has both legs; a caller that cannot send two legs
    can send the whole request to `engine`.
    """

    decision_id: str
    engine: EngineAddress
    incarnation: int
    policy_version: int
    placement: str
    order: str
    key_source: str
    prompt_tokens: int
    ttft_slo_s: float
    expires_at: float
    body: dict[str, Any]
    wait_s: float | msgspec.UnsetType = msgspec.UNSET
    queued_s: float | msgspec.UnsetType = msgspec.UNSET
    reason: str | msgspec.UnsetType = msgspec.UNSET
    predicted_hit_tokens: int | msgspec.UnsetType = msgspec.UNSET
    compute_s: float | msgspec.UnsetType = msgspec.UNSET
    candidates: tuple[Candidate, ...] | msgspec.UnsetType = msgspec.UNSET
    pair: RoutePair | msgspec.UnsetType = msgspec.UNSET


class DecisionTraces(Protocol):
    """Traces decisions (gateway.proxy.reported_spans)."""

    def begin(self, decision_id: str, caller: DecisionCaller, pool: LivePool, arrived_s: float) -> None:
        """Begin the spans of one request, which a listener ends."""
        ...

    def abandon(self, decision_id: str) -> None:
        """End the spans of a request that got no decision."""
        ...


class RouteApi:
    """Chooses engines for callers, and stores the answers of named requests for repeated calls."""

    def __init__(
        self,
        gateway: Gateway,
        lifecycle: RequestLifecycle,
        prompt_keys: PromptKeys,
        reporting: ReportingKeys,
        traces: DecisionTraces | None = None,
    ) -> None:
        self._gateway = gateway
        self._traces = traces
        self._lifecycle = lifecycle
        self._prompt_keys = prompt_keys
        self._reporting = reporting
        self._untracked = UntrackedRequests(lifecycle.assume_over)
        self._unreported = UnreportedHolds()
        self._repeated: RepeatedRequests[RouteAnswer] = RepeatedRequests()
        gateway.peers.serve(RECALL, self._recall)

    async def route(self, exchange: Exchange, caller: DecisionCaller) -> None:
        """Serve `POST /api/v1/route`."""
        arrived_s = monotonic()
        asked = await read(await exchange.body(), endpoint_of(exchange.head.headers.get(ORIGINAL_PATH, b"")))
        if exchange.scope["query_string"] == NO_WAIT:
            asked.wait = False
        head = exchange.head
        if head.given:
            made = functools.partial(self._one, exchange, caller, asked, self._gateway.new_id(), arrived_s)
            answer = await self._once(caller.key, head.request_id, made)
        else:
            answer = await self._one(exchange, caller, asked, head.request_id, arrived_s)
        exchange.decision_id = answer.decision_id
        await exchange.answer(200, _encode(answer))

    def at_once(self, admission: KnownHead, body: bytes, decision_id: str, arrived_s: float) -> bytes | None:
        """Return the answer to a request that does not have to wait, None if `route` must serve it."""
        caller: DecisionCaller = admission.caller
        endpoint, texts = endpoint_of(admission.original_path), self._gateway.has_approximate_pool
        asked = read_at_once(body, endpoint, waits=admission.waits, texts=texts)
        if asked is None:
            return None
        pool = self._pool(caller, asked, arrived_s)
        # Nothing that follows waits, so one step of the coroutine is the whole decision.
        if pool is None or pool.observes or not pool.answers_at_once:
            return None
        prompt = prompt_of(asked)
        if needs_tokenizer(pool, prompt):
            return None
        work = self._decide(pool, caller, asked, prompt, decision_id, arrived_s)
        try:
            work.send(None)
        except StopIteration as done:
            return _encode(done.value)
        # A long prompt is keyed in several steps; no engine is reserved yet.
        work.close()
        return None

    async def batch(self, exchange: Exchange, caller: DecisionCaller) -> None:
        """Serve `POST /api/v1/route/batch`: a list, or an object with `requests`. Entries fail independently."""
        arrived_s = monotonic()
        asked = await read_batch(await exchange.body())
        self._gateway.key_quotas.spend(caller.key, arrived_s, len(asked))
        head = exchange.head
        made = [self._entry(caller, entry, arrived_s, head, f"{head.request_id}/{n}") for n, entry in enumerate(asked)]
        answers = await while_connected(exchange, _together(made), self._undo_all)
        await exchange.answer(200, _encode({"decisions": answers}))

    async def _entry(
        self, caller: DecisionCaller, asked: RouteRequest, arrived_s: float, head: RequestHead, name: str
    ) -> RouteAnswer | msgspec.Raw:
        def make() -> Coroutine[Any, Any, RouteAnswer]:
            pool, decision_id = self._known_pool(caller, asked, arrived_s), self._gateway.new_id()
            return self._decide(pool, caller, asked, prompt_of(asked), decision_id, arrived_s)

        try:
            return await (self._once(caller.key, name, make) if head.given else make())
        except ApiError as error:
            return msgspec.Raw(error.body)

    async def once(self, exchange: Exchange, caller: DecisionCaller, asked: RouteRequest, name: str) -> RouteAnswer:
        """Return the decision for a request; if it has a `name`, the first decision under this name."""
        decision_id = self._gateway.new_id()
        make = functools.partial(self._one, exchange, caller, asked, decision_id, monotonic())
        return await self._once(caller.key, name, make) if name else await make()

    async def named(self, caller: ApiKeyEntry, name: str) -> RouteAnswer | None:
        """Return the recent decision under this name at any gateway, None if there is none."""
        try:
            answer = await self._repeated.known((caller.key_id, name), RECALL_S)
        except TimeoutError:
            return None
        if answer is None and (recalled := await self._gateway.named_requests.elsewhere(caller, name)) is not None:
            return _decode(recalled)
        return answer

    async def _once(self, caller: ApiKeyEntry, name: str, make: Callable[[], Awaitable[RouteAnswer]]) -> RouteAnswer:
        """Return the answer under this request name, from the gateway that received the name first."""

        async def find_or_make() -> RouteAnswer:
            answer = await self._gateway.named_requests.elsewhere(caller, name)
            return await make() if answer is None else _decode(answer)

        return await self._repeated.once((caller.key_id, name), find_or_make)

    async def _recall(self, caller: ApiKeyEntry, name: str, _body: bytes) -> bytes:
        """Return this gateway's answer under this name: PENDING while it is computed, empty if there is none."""
        try:
            answer = await self._repeated.known((caller.key_id, name), RECALL_S)
        except TimeoutError:
            return PENDING
        return b"" if answer is None else _encode(answer)

    async def _one(
        self, exchange: Exchange, caller: DecisionCaller, asked: RouteRequest, decision_id: str, arrived_s: float
    ) -> RouteAnswer:
        exchange.decision_id = decision_id
        pool = self._known_pool(caller, asked, arrived_s)
        work = self._decide(pool, caller, asked, prompt_of(asked), decision_id, arrived_s)
        # Neither a tokenizer nor the queue is awaited, so there is no time in which the client could leave.
        if not asked.wait and (asked.block_hashes is not None or asked.token_ids is not None):
            return await work
        return await while_connected(exchange, work, self._undo)

    async def _decide(
        self,
        pool: LivePool,
        caller: DecisionCaller,
        asked: RouteRequest,
        prompt: Prompt,
        decision_id: str,
        arrived_s: float,
    ) -> RouteAnswer:
        key, facts = caller.key, with_fields(caller.facts, asked)
        if pool.lag.late:
            # Before the prompt is tokenized, which a late gateway would only do in vain.
            unread = self._request(pool, caller, facts, asked, decision_id, arrived_s)
            self._lifecycle.reject_if_late(pool, unread)
        domain = pool.domains.of(key.tenant_id, asked.cache_salt)
        lora = pool.names.lora(self._gateway.services.model_in(pool, asked.model))
        keyed = await self._prompt_keys.keys(pool, domain, prompt, key.tenant_id, lora)
        request = self._request(pool, caller, facts, asked, decision_id, arrived_s, keyed)
        quotas, traces = self._gateway.key_quotas, self._traces
        self._gateway.usage.admit(key, pool.entry.pool_id, pool.entry.served_model)
        quotas.enter(key, decision_id, arrived_s)
        if traces is not None:
            traces.begin(decision_id, caller, pool, arrived_s)
        try:
            excluded = outside(pool, request.asked_model, caller.among)
            record = await self._lifecycle.place(pool, request, hold=asked.wait, excluded=excluded)
            held_s = self._held_s(pool, key, record, request)
            order = instruction_of(pool, caller, facts, keyed, merges=asked.merges and asked.sequences > 0)
            answer = self._answer(pool, key, record, asked, held_s, order)
        except BaseException:
            # Cancelled or failed: there is no answer, so no report will ever release the key's slot.
            quotas.release(decision_id)
            if traces is not None:
                traces.abandon(decision_id)
            raise
        if key.max_in_flight is not None:
            quotas.end_by(decision_id, monotonic() + _slot_s(pool, request, held_s))
        return answer

    def _known_pool(self, caller: DecisionCaller, asked: RouteRequest, arrived_s: float) -> LivePool:
        pool = self._pool(caller, asked, arrived_s)
        if pool is None:
            raise unknown_model()
        reject_if_observing(pool)
        return pool

    def _pool(self, caller: DecisionCaller, asked: RouteRequest, arrived_s: float) -> LivePool | None:
        service = self._gateway.service_for(caller.key, asked.model)
        if service is None:
            return None
        return service.choose(
            lambda: affinity_of(with_fields(caller.facts, asked).conversation, prompt_of(asked)), arrived_s
        )

    def _held_s(self, pool: LivePool, caller: ApiKeyEntry, record: DecisionRecord, request: GatewayRequest) -> float:
        """Return how long the engine stays reserved. If the caller will not report the request, schedule its end."""
        policy = pool.entry.policy
        if request.tracked:
            return policy.reservation_ttl_s
        life_s = estimated_life_s(record.decision.wait_s, record.decision.compute_s, request, policy)
        if not pool.one_tenant and not self._unreported.take(record, caller.key_id, life_s, monotonic()):
            self._lifecycle.let_go(record)
            return 0.0
        self._untracked.add(record, life_s)
        return life_s

    def _request(
        self,
        pool: LivePool,
        caller: DecisionCaller,
        facts: CallerFacts,
        asked: RouteRequest,
        decision_id: str,
        arrived_s: float,
        keyed: KeyedPrompt | None = None,
    ) -> GatewayRequest:
        model = self._gateway.services.model_in(pool, asked.model)
        tracked = self._reporting.reports(caller.reporter.key_id, arrived_s)
        # By position, and computed only where it matters: each decision runs this code.
        request = gateway_request(
            pool.entry,
            keyed,
            decision_id,
            caller.key,
            arrived_s,
            facts,
            asked.max_tokens or 0,
            asked.sequences,
            "" if pool.one_tenant else witness_of(caller.key, pool),
            asked.comparable,
            tracked,
            facts.door or API,
            caller.reporting_tenant,
            model,
            pool.names.lora(model),
            instructs=loads_for(pool, caller, facts, merges=asked.merges, tracked=tracked),
        )
        if model == asked.model:
            return request
        service = self._gateway.services.names()[asked.model].entry.name
        return msgspec.structs.replace(request, service=ServiceStory(service, asked.model))

    def _answer(
        self,
        pool: LivePool,
        caller: ApiKeyEntry,
        record: DecisionRecord,
        asked: RouteRequest,
        held_s: float,
        order: LoadInstruction | None,
    ) -> RouteAnswer:
        decision = record.decision
        engine = pool.engines.get(decision.engine_id)
        if engine is None:
            raise self._removed(record)
        body: dict[str, Any] = {}
        if record.salted:
            body["cache_salt"] = pool.domains.of(record.tenant_id, asked.cache_salt)
        if asked.priority is not None:
            body["priority"] = record.priority
        if record.service is not None:
            body["model"] = pool.entry.served_model
        order = order_on(record, decision.engine_id, order)
        sees_load = pool.one_tenant or may_see_load(caller, pool)
        sees_hits = sees_load or record.salted
        # The time that an engine is held reveals what it has cached.
        expires_at = time() + (held_s if sees_load else pool.entry.policy.reservation_ttl_s)
        answer = RouteAnswer(
            decision.decision_id,
            address_of(engine),
            decision.incarnation,
            decision.policy_version,
            decision.placement,
            decision.order,
            record.key_source,
            decision.prompt_tokens,
            record.ttft_slo_s,
            expires_at,
            body if order is None else {**body, **instructed(order)},
            decision.wait_s if sees_load else msgspec.UNSET,
            decision.queued_s if sees_load else msgspec.UNSET,
            decision.reason if sees_load else msgspec.UNSET,
            decision.hit_tokens if sees_hits else msgspec.UNSET,
            decision.compute_s if sees_hits else msgspec.UNSET,
            decision.candidates if sees_load else msgspec.UNSET,
        )
        if decision.pair is None:
            return answer
        decode = pool.engines.get(decision.pair.engine_id)
        if decode is None:
            raise self._removed(record)
        pair = route_pair(decision.pair, engine, decision.incarnation, decode, body, order)
        if not sees_load:
            pair = msgspec.structs.replace(pair, candidates=(), reason=msgspec.UNSET, tpot_s=msgspec.UNSET)
        return msgspec.structs.replace(answer, pair=pair)

    def _removed(self, record: DecisionRecord) -> ApiError:
        self._lifecycle.failed(record, monotonic(), "engine_removed")
        return ApiError(503, "The engine was just removed; try again.", "no_engine", retry_after_s=1.0)

    def _undo(self, answer: RouteAnswer) -> None:
        """Release the reservation of an answer whose client disconnected."""
        record = self._lifecycle.recent.get(answer.decision_id)
        if record is not None:
            self._lifecycle.cancelled(record, monotonic())

    def _undo_all(self, answers: list[RouteAnswer | msgspec.Raw]) -> None:
        for answer in answers:
            if isinstance(answer, RouteAnswer):
                self._undo(answer)


_encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
_decode: Callable[[bytes], RouteAnswer] = msgspec.json.Decoder(RouteAnswer).decode


def outside(pool: LivePool, model: str, among: frozenset[str] | None) -> frozenset[str]:
    """Return the engines at other addresses than these; raise ApiError 503 if none at these serves the model."""
    if among is None:
        return frozenset()
    kept = {engine_id for engine_id, engine in pool.engines.items() if urlsplit(engine.entry.url).netloc in among}
    if not kept & (pool.accepting - pool.names.lacking(model, pool.accepting)):
        raise rejection(Rejected("", NO_ENGINE, 1.0))
    return frozenset(pool.engines) - kept


def unknown_model() -> ApiError:
    """Return the 404 for a model that no pool serves. It does not repeat the name, which is client text."""
    return ApiError(
        404, "No pool serves this model; GET /v1/models lists those served.", "model_not_found", param="model"
    )


def _slot_s(pool: LivePool, request: GatewayRequest, held_s: float) -> float:
    """Return how long the request occupies its key's slot. If load is hidden, this is the time after a cache miss."""
    if request.tracked or not pool.hides_load_from(request.witness):
        return held_s
    policy = pool.entry.policy
    missed_s = PrefillCost.of(policy.prefill_cost).seconds(request.prompt_tokens, 0)
    return estimated_life_s(0.0, missed_s, request, policy)


async def _together(made: list[Coroutine[Any, Any, RouteAnswer | msgspec.Raw]]) -> list[RouteAnswer | msgspec.Raw]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(item) for item in made]
    return [task.result() for task in tasks]
