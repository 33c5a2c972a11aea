"""The OpenAI-compatible proxy: choose an engine, forward, relay. It retries on another engine if one fails in time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from gateway.api.fleet_visibility import may_see_hits
from gateway.api.route_api import unknown_model
from gateway.base.engine_api_keys import FLEET_KEY, REJECTED_KEY, key_remedy
from gateway.base.event_log import log_event
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.peers.regions.forward_server import ForwardedCall
from gateway.pools.engines.breaker import CONNECT, HTTP_4XX, HTTP_5XX, NO_PROGRESS, THROTTLED
from gateway.pools.pool.kv_load import order_on
from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.pools.pool.service import Service, reject_if_observing
from gateway.pools.services.named_service import NamedService
from gateway.pools.traffic.traffic_window import COMPLETED
from gateway.proxy.any_engine import AnyEngineRelay
from gateway.proxy.api_call import ApiCall, RoutedCall, read_body
from gateway.proxy.attempt import RETRIED_FREELY, Attempt, AttemptFailure, RelaySettings
from gateway.proxy.engine_relay import EngineRelay
from gateway.proxy.engine_transport import EngineTransport
from gateway.proxy.forwarded_request import ForwardedRequest, forwarded_request
from gateway.proxy.handoff import Handoff
from gateway.proxy.provider_relay import ProviderRelay
from gateway.proxy.region_relay import RegionRelay
from gateway.proxy.request_fields import own_salt, request_of
from gateway.proxy.service_overflow import ServiceOverflow
from gateway.requests.affinity import affinity_of
from gateway.requests.caller_facts import facts_of
from gateway.requests.formats.endpoints import BY_PATH
from gateway.requests.formats.owned_fields import reject_owned
from gateway.requests.formats.prompt import ChatPrompt, Prompt
from gateway.requests.gateway_request import GatewayRequest, with_prompt
from gateway.requests.lifecycle import RequestLifecycle
from gateway.requests.prompt_keys import KeyedPrompt, PromptKeys, has_block_keys
from gateway.requests.rejections import PoolRejectedError
from gateway.server.http.http_exchange import ClientGoneError, Exchange, while_connected
from gateway.server.http.json_body import BadBodyError, reject_nul_name
from gateway.server.http.openai_error import ApiError
from gateway.server.process.drain import CUT_OFF, SENTENCE, Drain, ShuttingDownError
from routing.values.decision import Elsewhere, Rejected
from routing.values.hop import Hop

if TYPE_CHECKING:
    from gateway.gateway import Gateway
    from gateway.pools.pool.live_pool import LivePool
    from gateway.proxy.request_spans import Tracing
    from kvstore.connector.stated_hint import StatedHint

MAX_ATTEMPTS = 3
OVERFLOWING = frozenset({CONNECT, NO_PROGRESS, THROTTLED})
"""Causes of a failed attempt that mean that no engine of the pool takes the request."""
REJECTED_KEY_CODE = "engine_rejects_key"
"""Error code of a configuration fault in the fleet, which clients cannot fix."""


class Proxy:
    """Serves the endpoints (gateway.requests.formats.endpoints) and `/v1/models`. It has no state between requests."""

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
        limits = gateway.settings.limits
        comment_s = gateway.settings.stream_comment_s
        settings = settings or RelaySettings(limits.answer_limit_s, limits.hang_limit_s, comment_s=comment_s)
        self._settings = settings
        transport = EngineTransport(settings, gateway.engine_connections)
        self._relay = EngineRelay(lifecycle, transport)
        self._handoff = Handoff(lifecycle, transport, self._relay, settings)
        self._any_engine = AnyEngineRelay(transport, drain)
        regions = gateway.regions
        self._region_relay = RegionRelay(regions, lifecycle) if regions is not None else None
        provider_relay = ProviderRelay(lifecycle, drain, settings)
        self._overflow = ServiceOverflow(gateway, lifecycle, provider_relay, self._routed, self._serve_routed)

    async def serve(self, exchange: Exchange, caller: ApiKeyEntry, forwarded: ForwardedCall | None = None) -> None:
        """Serve one request to a routed endpoint, streamed or complete.

        `forwarded`: the request is from another region's gateway, which has authenticated the caller.
        """
        arrived_s = monotonic() - (forwarded.head.age_s if forwarded is not None else 0.0)
        endpoint = BY_PATH[exchange.path]
        original = await exchange.body()
        body, held = await read_body(endpoint, original, exchange)
        reject_owned(body)
        facts = facts_of(exchange.head.headers, body)
        # The edge's id is the request's only id, unless the client chose it: clients may choose alike.
        decision_id = self._gateway.new_id() if exchange.head.given else exchange.head.request_id
        decision_id = forwarded.head.decision_id if forwarded is not None else decision_id

        def affinity() -> bytes:
            prompt = endpoint.prompt(body) if endpoint.routed else None
            return affinity_of(facts.conversation, prompt) or decision_id.encode()

        service = self._service(caller, body, forwarded)
        pool = service.choose(affinity, monotonic())
        reject_if_observing(pool)
        if endpoint.routed:
            self._gateway.usage.admit(caller, pool.entry.pool_id, pool.entry.served_model)
        self._lifecycle.metrics.proxied.count((pool.entry.pool_id, endpoint.path))
        tracing = self._tracing
        with nullcontext() if tracing is None else tracing.request(exchange, endpoint, pool, arrived_s) as spans:
            call = ApiCall(
                exchange=exchange,
                endpoint=endpoint,
                caller=caller,
                decision_id=decision_id,
                original=original,
                held=held,
                body=body,
                facts=facts,
                arrived_s=arrived_s,
                forwarded=forwarded,
                spans=spans,
            )
            if not endpoint.routed:
                await self._pass_on(call.in_pool(pool, service), pool)
            elif forwarded is None and isinstance(service, NamedService):
                with self._counted(call, call.arrived_s):
                    await self._overflow.serve(call, service, affinity)
            else:
                routed = self._routed(call.in_pool(pool, service), pool, forwarded.head.hop if forwarded else None)
                with self._counted(call, call.arrived_s):
                    await self._serve_routed(routed)

    async def _serve_routed(self, routed: RoutedCall) -> None:
        """Serve a request on an engine of its pool or in another region, with at most one hop."""
        call, pool, regions = routed.call, routed.pool, self._gateway.regions
        while (gone := await while_connected(call.exchange, self._serve_in_pool(routed))) and regions is not None:
            # This gateway serves the other region's engines.
            regions.traffic.forwarded(gone.hop)
            pool = regions.pool_in(gone.hop.destination, pool.entry.served_model)
            again = self._routed(call, pool, gone.hop)
            again.asked = msgspec.structs.replace(again.asked, service=routed.asked.service, spare=routed.asked.spare)
            routed = again

    def _routed(self, call: ApiCall, pool: LivePool, hop: Hop | None) -> RoutedCall:
        """Return the call in the pool's terms; raise ApiError or BadBodyError if the pool cannot serve it."""
        exchange, body = call.exchange, call.body
        exchange.decision_id = call.decision_id
        asked = request_of(call, pool, hop)
        self._lifecycle.reject_if_late(pool, asked)
        prompt = call.endpoint.prompt(body)
        domain = pool.domains.of(call.caller.tenant_id, own_salt(body))
        if domain and call.endpoint.is_form:
            # Engines take no salt in a form, and some keep the audio's blocks by its content.
            text = "This pool isolates its tenants' caches, which engines cannot do for forms; use another pool."
            raise ApiError(501, text, "isolated_pool")
        request = forwarded_request(
            call.endpoint,
            call.original,
            body,
            exchange.head.headers,
            held=call.held,
            request_id=call.decision_id,
            salt=domain,
            priority=asked.priority if call.facts.priority is not None else None,
            shows_hits=may_see_hits(call.caller, pool, salted=bool(domain)),
            max_tokens=max(0, asked.max_output_tokens),
            media_names=_media_names(pool, domain, prompt),
            renamed=call.renamed,
        )
        if request.streams and hop is None:
            exchange.comment_while_waiting(self._settings.comment_s, call.endpoint.errors.as_event)
        return RoutedCall(call=call, pool=pool, asked=asked, request=request, prompt=prompt, domain=domain)

    async def _pass_on(self, call: ApiCall, pool: LivePool) -> None:
        """Serve a request that any engine can serve; raise BadBodyError if its prompt is invalid."""
        call.endpoint.prompt(call.body)
        request = forwarded_request(
            call.endpoint,
            call.original,
            call.body,
            call.exchange.head.headers,
            held=call.held,
            request_id=call.decision_id,
            salt="",
            shows_hits=may_see_hits(call.caller, pool, salted=False),
            renamed=call.renamed,
        )
        if call.spans is not None:
            request = request.traced(call.spans.carried())
        with self._counted(call, monotonic()):
            await while_connected(
                call.exchange, self._any_engine.serve(call.exchange, pool, request, call.body["model"])
            )

    @contextmanager
    def _counted(self, call: ApiCall, now_s: float) -> Iterator[None]:
        """Count the call toward its key's requests in flight; raise ApiError over the key's limits."""
        quotas = self._gateway.key_quotas
        quotas.enter(call.caller, call.decision_id, now_s)
        try:
            yield
        finally:
            quotas.release(call.decision_id)

    def _service(self, caller: ApiKeyEntry, body: dict[str, Any], forwarded: ForwardedCall | None) -> Service:
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise BadBodyError("bad_field", "Send model as a string.", param="model")
        reject_nul_name(model, "model")
        service = self._gateway.service_for(caller, model)
        if service is not None and forwarded is not None:
            service = service.in_region(forwarded.head.hop.destination)
        if service is None:
            raise unknown_model()
        return service

    async def _serve_in_pool(self, routed: RoutedCall) -> Elsewhere | None:
        """Serve a request to its end, here or in another region. Return the region that this gateway serves itself
        through another pool, which gets the request.
        """
        await self._key(routed)
        routed.pool.retry_budget.enter()
        try:
            excluded = routed.pool.names.lacking(routed.asked.asked_model, routed.pool.accepting)
            earlier, hold = routed.record, routed.hold
            placed = self._lifecycle.place(routed.pool, routed.asked, hold=hold, excluded=excluded, earlier=earlier)
            record = routed.record = await placed
            record.operation = routed.call.endpoint.operation
            while (elsewhere := record.elsewhere) is not None:
                if not elsewhere.gateway:
                    return elsewhere
                if await self._forward(routed, record, elsewhere):
                    return None
                await self._lifecycle.forward_failed(record, routed.asked)
            await self._serve_here(routed, record, excluded)
        except (asyncio.CancelledError, ClientGoneError, ShuttingDownError) as error:
            if self._drain.cut and not isinstance(error, ClientGoneError):
                await self._cut_off(routed)
            elif routed.record is not None:
                self._lifecycle.cancelled(routed.record, monotonic())
                raise
            else:
                raise
        finally:
            routed.pool.retry_budget.leave(retried=routed.retried)
        return None

    async def _serve_here(self, routed: RoutedCall, record: DecisionRecord, excluded: frozenset[str]) -> None:
        """Relay an engine's answer. Before the first byte, other engines can be tried."""
        pool, failures = routed.pool, list[AttemptFailure]()
        for attempts_left in reversed(range(MAX_ATTEMPTS)):
            # Only from here on: while it waits for an engine, the drain rejects it instead.
            with self._drain.relay():
                failure = await self._attempt(routed.call, record, routed.request, last=attempts_left == 0)
            if failure is None:
                _contradict(pool, record, failures)
                return
            excluded |= {failure.engine_id}
            failures.append(failure)
            if failure.rejection is not None:
                left = pool.rejections.untried(failure.engine_id, excluded)
                if _alike(failures) and (attempts_left == 0 or not left):
                    if routed.asked.spare and failure.kind == THROTTLED:
                        self._give_up(record, failure, spare=True)
                    await self._relay_rejection(routed.call.exchange, record, failures, all_tried=not left)
                    return
                excluded |= pool.rejections.doubted(left)
            if attempts_left == 0 or failure.final:
                self._give_up(record, failure, spare=routed.asked.spare)
            routed.retried = routed.retried or self._takes_budget(pool, record, failure)
            self._retry(record, failure)
            record = await self._lifecycle.place(pool, routed.asked, hold=True, excluded=excluded, earlier=record)

    async def _key(self, routed: RoutedCall) -> None:
        """Add the prompt's keys to the call; raise ApiError if the prompt is too long or cannot be tokenized."""
        pool, asked, call = routed.pool, routed.asked, routed.call
        lora = pool.names.lora(call.body["model"])
        keyed = await self._prompt_keys.keys(pool, routed.domain, routed.prompt, asked.tenant_id, lora)
        routed.asked = with_prompt(pool.entry, asked, keyed)
        routed.request = _with_order(pool, routed.asked, keyed, routed.request, call.facts.cache_hint)

    async def _forward(self, routed: RoutedCall, record: DecisionRecord, elsewhere: Elsewhere) -> bool:
        """Relay the other region's answer. Return False if the region did not take the request."""
        relay, budget = self._region_relay, routed.pool.retry_budget
        if relay is None:
            raise RuntimeError("a request leaves for a region that this gateway does not know")
        # Meanwhile it is no request of this pool's engines.
        budget.leave(retried=False)
        try:
            with self._drain.relay():
                return await relay.relay(routed.call, record, elsewhere)
        finally:
            budget.enter()

    async def _cut_off(self, routed: RoutedCall) -> None:
        """Notify the client that this process ends; raise ShuttingDownError if nothing was sent yet."""
        exchange, request = routed.call.exchange, routed.request
        if routed.record is not None:
            self._lifecycle.cut_off(routed.record, monotonic())
        if not exchange.started:
            raise ShuttingDownError
        if request.streams:
            await exchange.chunk(request.endpoint.errors.event(503, SENTENCE, CUT_OFF))
            await exchange.end()

    async def _attempt(
        self, call: ApiCall, record: DecisionRecord, request: ForwardedRequest, *, last: bool
    ) -> AttemptFailure | None:
        exchange, spans = call.exchange, call.spans
        if spans is None:
            return await self._try(exchange, record, request, last=last)
        spans.decided(record)
        with spans.attempt(record.pool.engines.get(record.decision.engine_id)) as span:
            failure = await self._try(exchange, record, request.traced(span.headers, span.facts), last=last)
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
        request = request.ordered(order_on(record, decision.engine_id, request.order))
        limits = self._settings.limits(record.pool, decision.engine_id, request, decision.compute_s)
        return await self._relay.relay(exchange, record, Attempt(engine, request, limits, decision.compute_s))

    def _takes_budget(self, pool: LivePool, record: DecisionRecord, failure: AttemptFailure) -> bool:
        """Return whether the next attempt uses the retry budget; raise ApiError if the budget is empty."""
        if failure.kind in RETRIED_FREELY:
            return False
        if not pool.retry_budget.take():
            self._lifecycle.metrics.retries.inc(record.decision.pool_id, "budget_empty")
            self._give_up(record, failure)
        return True

    async def _relay_rejection(
        self, exchange: Exchange, record: DecisionRecord, failures: Sequence[AttemptFailure], *, all_tried: bool
    ) -> None:
        """Answer the client as all engines have answered. No engine is blamed for a common answer."""
        failure, now = failures[-1], monotonic()
        rejects_key = failure.status in REJECTED_KEY
        if rejects_key or failure.kind == HTTP_5XX:
            self._lifecycle.failed(record, now, REJECTED_KEY_CODE if rejects_key else f"http_{failure.status}")
        else:
            self._lifecycle.client_error(record, now, failure.status)
        if all_tried or failure.kind != THROTTLED:
            record.pool.rejections.forgive([item.engine_id for item in failures], failure.kind, now)
        if rejects_key:
            record.pool.progress.engine(failure.engine_id).forgive()
            raise _rejected_key(record.pool, failure)
        if failure.rejection is not None:
            await exchange.answer(failure.status, failure.rejection.body, failure.rejection.headers)

    def _retry(self, record: DecisionRecord, failure: AttemptFailure) -> None:
        failed = failure.kind not in (HTTP_4XX, THROTTLED)
        self._lifecycle.left(record, failed=failed, engine_id=failure.engine_id, cause=failure.kind)
        self._lifecycle.metrics.retries.inc(record.decision.pool_id, failure.kind)
        log_event(
            "retried",
            decision_id=record.decision.decision_id,
            client_request_id=record.client_request_id,
            pool_id=record.decision.pool_id,
            engine_id=failure.engine_id,
            cause=failure.kind,
            status=failure.status,
        )

    def _give_up(self, record: DecisionRecord, failure: AttemptFailure, *, spare: bool = False) -> NoReturn:
        if spare and failure.kind in OVERFLOWING and not failure.final:
            # No engine has begun to work on it, so the rest of its service may.
            self._retry(record, failure)
            rejected = Rejected(record.decision.decision_id, failure.as_error().code, 1.0)
            raise PoolRejectedError(rejected, None, record)
        self._lifecycle.failed(record, monotonic(), failure.as_error().code)
        # A variable with the error would keep, by its traceback, the request until a garbage collection.
        raise failure.as_error()


def _rejected_key(pool: LivePool, failure: AttemptFailure) -> ApiError:
    """Return the error of a request whose engines reject the gateway's key. Engines never see the client's key."""
    engine = pool.engines.get(failure.engine_id)
    variable = engine.entry.key_variable if engine is not None else FLEET_KEY
    if engine is not None:
        engine.doubt_models()
    message = f"The engines reject the gateway's key (status {failure.status}). {key_remedy(variable)}"
    return ApiError(502, message, REJECTED_KEY_CODE)


def _media_names(pool: LivePool, domain: str, prompt: Prompt) -> list[str]:
    """Return the names under which engines store the prompt's media; empty for a medium given by address."""
    media = prompt.media if isinstance(prompt, ChatPrompt) else ()
    return ["" if item.linked else pool.domains.media_name(domain, item.digest) for item in media]


def _contradict(pool: LivePool, record: DecisionRecord, failures: Sequence[AttemptFailure]) -> None:
    """Record that an engine served a request that others had rejected."""
    if failures and (record.first_token_s is not None or record.outcome == COMPLETED):
        rejected = [
            failure.engine_id for failure in failures if failure.rejection is not None and failure.kind != HTTP_5XX
        ]
        pool.rejections.contradict(rejected)


def _alike(failures: list[AttemptFailure]) -> bool:
    """Return whether all attempts were rejected with the same status."""
    return all(failure.rejection is not None and failure.status == failures[0].status for failure in failures)


def _with_order(
    pool: LivePool, asked: GatewayRequest, keyed: KeyedPrompt, request: ForwardedRequest, hint: StatedHint
) -> ForwardedRequest:
    """Return the request with instructions for the KV of its prompt.

    Keys are sent only if they are those of the engine's blocks and the request has one prompt.
    """
    if request.endpoint.one_token is None or not pool.loads.follows:
        return request
    keys = keyed.keys if has_block_keys(keyed) else ()
    order = pool.loads.order_of(keys, asked.tenant_id, hint)
    return msgspec.structs.replace(request, order=order, keys=keys)
