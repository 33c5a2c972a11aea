"""The OpenAI-compatible proxy: place, forward, relay; another engine where the first one fails in time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from gateway.api.fleet_visibility import may_see_hits
from gateway.api.route_api import unknown_model
from gateway.base.event_log import log_event
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.engines.breaker import CONNECT
from gateway.engines.engine_rejection import Rejection
from gateway.http.client_presence import while_connected
from gateway.http.http_exchange import ClientGoneError, Exchange
from gateway.http.json_body import BadBodyError, decode_object_in_turns, reject_nul_name
from gateway.http.openai_error import ApiError
from gateway.pool.observe_only import reject_if_observing
from gateway.pool.recent_decisions import DecisionRecord
from gateway.pool.request_loads import order_on
from gateway.process.drain import CUT_OFF, SENTENCE, Drain, ShuttingDownError
from gateway.proxy.attempt import RETRIED_FREELY, Attempt, AttemptFailure, RelaySettings
from gateway.proxy.endpoints import BY_PATH, Endpoint
from gateway.proxy.engine_relay import EngineRelay
from gateway.proxy.engine_transport import EngineTransport
from gateway.proxy.forwarded_request import ForwardedRequest, forwarded_request
from gateway.proxy.handoff import Handoff
from gateway.proxy.unplaced import Unplaced
from gateway.requests.cache_hint import cache_hint, pin_s
from gateway.requests.lifecycle import RequestLifecycle
from gateway.requests.objective_headers import slo_class, tbt_slo_s, ttft_slo_s
from gateway.requests.priority_ceiling import allowed_priority
from gateway.requests.prompt import Prompt
from gateway.requests.prompt_keys import KeyedPrompt, PromptKeys, names_blocks
from gateway.requests.wanted import Wanted
from gateway.traffic.traffic_window import COMPLETED

if TYPE_CHECKING:
    from gateway.gateway import Gateway
    from gateway.pool.live_pool import LivePool
    from gateway.proxy.request_spans import RequestSpans, Tracing
    from kvstore.transfer.frames import CacheHint

MODELS = "/v1/models"
MAX_ATTEMPTS = 3
MAX_SALT = 1024
MAX_SEQUENCES = 128
"""Answers to one prompt that are counted; engines allow fewer."""


class Proxy:
    """Serves the endpoints (gateway.proxy.endpoints) and `/v1/models`; keeps no state between requests."""

    def __init__(
        self,
        gateway: Gateway,
        lifecycle: RequestLifecycle,
        prompt_keys: PromptKeys,
        drain: Drain,
        *,
        settings: RelaySettings | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._gateway = gateway
        self._tracing = tracing
        self._lifecycle = lifecycle
        self._prompt_keys = prompt_keys
        self._drain = drain
        self._settings = settings = settings or RelaySettings()
        transport = EngineTransport(settings)
        self._relay = EngineRelay(lifecycle, transport)
        self._handoff = Handoff(lifecycle, transport, self._relay, settings)
        self._unplaced = Unplaced(transport, drain)

    async def serve(self, exchange: Exchange, caller: ApiKeyEntry) -> None:
        """Serve one request to an endpoint that is routed, streamed or whole."""
        arrived_s = monotonic()
        endpoint = BY_PATH[exchange.path]
        original = await exchange.body()
        body = await decode_object_in_turns(original)
        pool = self._pool(caller, body)
        # The edge's id is the request's only id, unless the client chose it: clients may choose alike.
        decision_id = self._gateway.new_id() if exchange.head.given else exchange.head.request_id
        self._lifecycle.metrics.proxied.count((pool.entry.pool_id, endpoint.path))
        tracing = self._tracing
        with nullcontext() if tracing is None else tracing.request(exchange, endpoint, pool, arrived_s) as spans:
            if endpoint.routed:
                await self._route(endpoint, exchange, caller, pool, decision_id, original, body, spans, arrived_s)
            else:
                await self._pass_on(endpoint, exchange, caller, pool, decision_id, original, body, spans)

    async def _route(
        self,
        endpoint: Endpoint,
        exchange: Exchange,
        caller: ApiKeyEntry,
        pool: LivePool,
        decision_id: str,
        original: bytes,
        body: dict[str, Any],
        spans: RequestSpans | None,
        arrived_s: float,
    ) -> None:
        """Serve a request on the engine that the router chooses."""
        exchange.decision_id = decision_id
        wanted = _wanted(decision_id, caller, body, exchange, arrived_s, endpoint)
        self._lifecycle.reject_if_late(pool, wanted)
        prompt, hint = endpoint.prompt(body), cache_hint(exchange.head.headers, body)
        domain = pool.domains.of(caller.tenant_id, _own_salt(body))
        request = forwarded_request(
            endpoint,
            original,
            body,
            exchange.head.headers,
            request_id=decision_id,
            salt=domain,
            priority=wanted.priority,
            tells_hits=may_see_hits(caller, pool, salted=bool(domain)),
        )
        quotas = self._gateway.key_quotas
        quotas.enter(caller, decision_id, arrived_s)
        try:
            await while_connected(
                exchange, self._serve_while_connected(exchange, pool, wanted, domain, prompt, request, hint, spans)
            )
        finally:
            quotas.release(decision_id)

    async def _pass_on(
        self,
        endpoint: Endpoint,
        exchange: Exchange,
        caller: ApiKeyEntry,
        pool: LivePool,
        request_id: str,
        original: bytes,
        body: dict[str, Any],
        spans: RequestSpans | None,
    ) -> None:
        """Serve a request that is for any engine."""
        request = forwarded_request(endpoint, original, body, exchange.head.headers, request_id=request_id, salt="")
        if spans is not None:
            request = request.traced(spans.carried())
        quotas = self._gateway.key_quotas
        quotas.enter(caller, request_id, monotonic())
        try:
            await while_connected(exchange, self._unplaced.serve(exchange, pool, request))
        finally:
            quotas.release(request_id)

    async def models(self, exchange: Exchange, caller: ApiKeyEntry) -> None:
        """Serve `GET /v1/models` and `/v1/models/{id}`: what all pools together serve to the caller."""
        pools = sorted(self._gateway.pools.values(), key=lambda pool: (pool.entry.served_model, pool.entry.pool_id))
        granted = caller.served_models
        cards = {
            pool.entry.served_model: _model_card(pool)
            for pool in reversed(pools)
            if not granted or pool.entry.served_model in granted
        }
        name = exchange.path.removeprefix(MODELS).removeprefix("/")
        if not name:
            listing = {"object": "list", "data": [cards[model] for model in sorted(cards)]}
            await exchange.answer(200, msgspec.json.encode(listing))
        elif name in cards:
            await exchange.answer(200, msgspec.json.encode(cards[name]))
        else:
            raise unknown_model()

    def _pool(self, caller: ApiKeyEntry, body: dict[str, Any]) -> LivePool:
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise BadBodyError("bad_field", "Send model as a string.", param="model")
        reject_nul_name(model, "model")
        pool = self._gateway.pool_for(caller, model)
        if pool is None:
            raise unknown_model()
        reject_if_observing(pool)
        return pool

    async def _serve_while_connected(
        self,
        exchange: Exchange,
        pool: LivePool,
        wanted: Wanted,
        domain: str,
        prompt: Prompt,
        request: ForwardedRequest,
        hint: CacheHint,
        spans: RequestSpans | None,
    ) -> None:
        keyed = await self._prompt_keys.keys(pool, domain, prompt)
        request = _with_order(pool, wanted, keyed, request, hint)
        pool.retry_budget.enter()
        retried = False
        record: DecisionRecord | None = None
        excluded: frozenset[str] = frozenset()
        failures: list[AttemptFailure] = []
        try:
            for attempts_left in reversed(range(MAX_ATTEMPTS)):
                record = await self._lifecycle.place(pool, wanted, keyed, hold=True, excluded=excluded, earlier=record)
                with self._drain.relay():
                    failure = await self._attempt(exchange, record, request, spans, last=attempts_left == 0)
                if failure is None:
                    if failures and (record.first_token_s is not None or record.outcome == COMPLETED):
                        pool.refusals.contradict([each.engine_id for each in failures if each.rejection is not None])
                    break
                excluded |= {failure.engine_id}
                failures.append(failure)
                if failure.rejection is not None:
                    left = pool.refusals.untried(failure.engine_id, excluded)
                    if _alike(failures) and (attempts_left == 0 or not left):
                        await self._relay_rejection(exchange, record, failures, failure.rejection, all_tried=not left)
                        break
                    excluded |= pool.refusals.doubted(left)
                if attempts_left == 0:
                    self._give_up(record, failure)
                retried = retried or self._takes_budget(pool, record, failure)
                self._retry(record, failure)
        except (asyncio.CancelledError, ClientGoneError, ShuttingDownError) as error:
            if self._drain.cut and not isinstance(error, ClientGoneError):
                await self._cut_off(exchange, record, request)
                return
            if record is not None:
                self._lifecycle.cancelled(record, monotonic())
            raise
        finally:
            pool.retry_budget.leave(retried=retried)

    async def _cut_off(self, exchange: Exchange, record: DecisionRecord | None, request: ForwardedRequest) -> None:
        """Tell the client that this process ends; raises ShuttingDownError where nothing has gone out yet."""
        if record is not None:
            self._lifecycle.cut_off(record, monotonic())
        if not exchange.started:
            raise ShuttingDownError
        if request.streams:
            await exchange.chunk(request.endpoint.errors.event(503, SENTENCE, CUT_OFF))
            await exchange.end()

    async def _attempt(
        self,
        exchange: Exchange,
        record: DecisionRecord,
        request: ForwardedRequest,
        spans: RequestSpans | None,
        *,
        last: bool,
    ) -> AttemptFailure | None:
        if spans is None:
            return await self._try(exchange, record, request, last=last)
        spans.decided(record)
        with spans.attempt(record.pool.engines.get(record.decision.engine_id)) as span:
            failure = await self._try(exchange, record, request.traced(span.headers), last=last)
            if failure is not None:
                span.failed(failure)
            return failure

    async def _try(
        self, exchange: Exchange, record: DecisionRecord, request: ForwardedRequest, *, last: bool
    ) -> AttemptFailure | None:
        decision = record.decision
        if decision.pair is not None:
            # Two attempts to hand over are enough: on the last one the decode engine computes the prompt itself.
            return await self._handoff.relay(exchange, record, decision.pair, request, alone=last)
        engine = record.pool.engines.get(decision.engine_id)
        if engine is None:
            return AttemptFailure(CONNECT, decision.engine_id)
        request = request.ordered(order_on(record, decision.engine_id, request.order, request.keys))
        attempt = Attempt(engine, request, self._settings.first_byte_s, decision.compute_s)
        return await self._relay.relay(exchange, record, attempt)

    def _takes_budget(self, pool: LivePool, record: DecisionRecord, failure: AttemptFailure) -> bool:
        """Return whether the next attempt takes from the budget; raises ApiError where the budget is empty."""
        if failure.kind in RETRIED_FREELY:
            return False
        if not pool.retry_budget.take():
            self._lifecycle.metrics.retries.inc(record.decision.pool_id, "budget_empty")
            self._give_up(record, failure)
        return True

    async def _relay_rejection(
        self,
        exchange: Exchange,
        record: DecisionRecord,
        failures: Sequence[AttemptFailure],
        rejection: Rejection,
        *,
        all_tried: bool,
    ) -> None:
        """Tell the client what every engine that was asked has answered; what all answer is no engine's fault."""
        if all_tried:
            record.pool.refusals.forgive([each.engine_id for each in failures], monotonic())
        self._lifecycle.client_error(record, monotonic(), rejection.status)
        await exchange.answer(rejection.status, rejection.body, rejection.headers)

    def _retry(self, record: DecisionRecord, failure: AttemptFailure) -> None:
        self._lifecycle.left(record, failed=failure.rejection is None)
        self._lifecycle.metrics.retries.inc(record.decision.pool_id, failure.kind)
        log_event(
            "retried",
            decision_id=record.decision.decision_id,
            pool_id=record.decision.pool_id,
            engine_id=failure.engine_id,
            cause=failure.kind,
            status=failure.status,
        )

    def _give_up(self, record: DecisionRecord, failure: AttemptFailure) -> NoReturn:
        error: ApiError = failure.as_error()
        self._lifecycle.failed(record, monotonic(), error.code)
        raise error


def _alike(failures: list[AttemptFailure]) -> bool:
    """Return whether all attempts were rejected with the same status."""
    return all(each.rejection is not None and each.status == failures[0].status for each in failures)


def _wanted(
    decision_id: str,
    caller: ApiKeyEntry,
    body: dict[str, Any],
    exchange: Exchange,
    arrived_s: float,
    endpoint: Endpoint,
) -> Wanted:
    headers = exchange.head.headers
    session = body.get("session_id") or headers.get(b"x-session-id", b"").decode("latin-1")
    reject_nul_name(session, "session_id")
    priority = _whole_number(body, "priority")
    return Wanted(
        decision_id,
        caller.tenant_id,
        arrived_s,
        ttft_slo_s(headers),
        next((limit for name in endpoint.limits if (limit := _whole_number(body, name))), 0),
        session[:256] if isinstance(session, str) else "",
        None if priority is None else allowed_priority(caller, priority),
        tbt_slo_s(headers),
        slo_class(headers),
        caller.slo_class,
        proxied=True,
        sequences=_sequences(body) if endpoint.generates else 0,
    )


def _with_order(
    pool: LivePool, wanted: Wanted, keyed: KeyedPrompt, request: ForwardedRequest, hint: CacheHint
) -> ForwardedRequest:
    """Return the request with what engines are told of its prompt's KV.

    Keys that are not those of the engine's blocks, or of one of several prompts, are not told.
    """
    if request.endpoint.one_token is None or not pool.loads.follows:
        return request
    keys = keyed.keys if names_blocks(keyed) else ()
    order = pool.loads.order_of(keys, wanted.tenant_id, hint, pin_s(hint))
    return msgspec.structs.replace(request, order=order, keys=keys)


def _sequences(body: dict[str, Any]) -> int:
    """Return how many answers are decoded for the prompt; what no engine takes for a number counts as one."""
    asked = [value for name in ("n", "best_of") if isinstance(value := body.get(name), int)]
    return min(MAX_SEQUENCES, max(1, *asked)) if asked else 1


def _own_salt(body: dict[str, Any]) -> str | None:
    """Return the salt by which the caller sets this prompt apart from its others; None: it does not."""
    salt = body.get("cache_salt")
    if salt is None or (isinstance(salt, str) and len(salt) <= MAX_SALT):
        return salt
    raise BadBodyError(
        "bad_field", f"Send cache_salt as a string of at most {MAX_SALT} characters.", param="cache_salt"
    )


def _whole_number(body: dict[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**31) <= value < 2**31:
        raise BadBodyError("bad_field", f"Send {name} as a whole number.", param=name)
    return value


def _model_card(pool: LivePool) -> dict[str, str | int]:
    return {
        "id": pool.entry.served_model,
        "object": "model",
        "created": 0,
        "owned_by": "switchyard",
        "max_model_len": pool.entry.max_prompt_tokens,
    }
