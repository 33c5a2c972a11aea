"""The OpenAI-compatible proxy: place, forward, relay; another engine where the first one fails in time."""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from gateway.breaker import CONNECT, NO_PROGRESS
from gateway.client_presence import while_connected
from gateway.engine_relay import AttemptFailure, EngineRelay, RelaySettings
from gateway.event_log import log_event
from gateway.forwarded_request import ForwardedRequest, forwarded_request
from gateway.handoff import Handoff
from gateway.http_exchange import ClientGoneError, Exchange
from gateway.json_body import BadBodyError, decode_object
from gateway.objective_headers import slo_class, tbt_slo_s, ttft_slo_s
from gateway.observing import refuse_if_observing
from gateway.openai_error import ApiError
from gateway.placement_desk import PlacementDesk, Wanted
from gateway.prompt import Prompt, chat_prompt, completion_prompt
from gateway.prompt_keys import PromptKeys, cache_salt
from gateway.recent_decisions import DecisionRecord
from gateway.request_head import new_id
from gateway.route_api import unknown_model
from gateway.snapshot import ApiKeyEntry
from routing.observation import FirstToken

if TYPE_CHECKING:
    from gateway.gateway import Gateway
    from gateway.live_pool import LivePool

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MODELS = "/v1/models"
MAX_ATTEMPTS = 3
_ASSUMED_PREFILL_MARGIN_S = 0.05


class Proxy:
    """Serves `/v1`; keeps no state between requests."""

    def __init__(
        self,
        gateway: Gateway,
        desk: PlacementDesk,
        prompt_keys: PromptKeys,
        *,
        fleet_secret: bytes,
        engine_bearer: str = "",
        settings: RelaySettings | None = None,
    ) -> None:
        self._gateway = gateway
        self._desk = desk
        self._prompt_keys = prompt_keys
        self._fleet_secret = fleet_secret
        self._engine_bearer = engine_bearer
        settings = settings or RelaySettings()
        self._relay = EngineRelay(desk, settings)
        self._handoff = Handoff(desk, self._relay, settings)

    async def serve(self, exchange: Exchange, caller: ApiKeyEntry) -> None:
        """Serve one chat or text completion, streamed or whole."""
        arrived_s = monotonic()
        original = await exchange.body()
        body = decode_object(original)
        pool = self._pool(body)
        prompt: Prompt = chat_prompt(body) if exchange.path == CHAT else completion_prompt(body.get("prompt"))
        # The edge's id is the request's only id, unless the client chose it: clients may choose alike.
        decision_id = new_id() if exchange.head.given else exchange.head.request_id
        exchange.decision_id = decision_id
        wanted = _wanted(decision_id, caller, body, exchange, arrived_s)
        request = forwarded_request(
            exchange.path,
            original,
            body,
            exchange.head.headers,
            request_id=decision_id,
            salt=cache_salt(self._fleet_secret, caller.tenant_id) if pool.entry.isolated else None,
            bearer=self._engine_bearer,
        )
        quotas = self._gateway.key_quotas
        quotas.enter(caller, decision_id, arrived_s)
        try:
            await while_connected(exchange, self._serve_while_connected(exchange, pool, wanted, prompt, request))
        finally:
            quotas.release(decision_id)

    async def models(self, exchange: Exchange, caller: ApiKeyEntry) -> None:
        """Serve `GET /v1/models` and `/v1/models/{id}`: what all pools together serve."""
        pools = sorted(self._gateway.pools.values(), key=lambda pool: (pool.entry.served_model, pool.entry.pool_id))
        cards = {pool.entry.served_model: _model_card(pool) for pool in reversed(pools)}
        name = exchange.path.removeprefix(MODELS).removeprefix("/")
        if not name:
            listing = {"object": "list", "data": [cards[model] for model in sorted(cards)]}
            await exchange.answer(200, msgspec.json.encode(listing))
        elif name in cards:
            await exchange.answer(200, msgspec.json.encode(cards[name]))
        else:
            raise unknown_model()

    def _pool(self, body: dict[str, Any]) -> LivePool:
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise BadBodyError("bad_field", "Send model as a string.", param="model")
        pool = self._gateway.pool_for_model(model)
        if pool is None:
            raise unknown_model()
        refuse_if_observing(pool)
        return pool

    async def _serve_while_connected(
        self, exchange: Exchange, pool: LivePool, wanted: Wanted, prompt: Prompt, request: ForwardedRequest
    ) -> None:
        keyed = await self._prompt_keys.keys(pool, wanted.tenant_id, prompt)
        pool.retry_budget.enter()
        retried = False
        record: DecisionRecord | None = None
        excluded: frozenset[str] = frozenset()
        try:
            for attempts_left in reversed(range(MAX_ATTEMPTS)):
                record = await self._desk.place(pool, wanted, keyed, hold=True, excluded=excluded, earlier=record)
                failure = await self._attempt(exchange, pool, record, request, last=attempts_left == 0)
                if failure is None:
                    return
                excluded |= {failure.engine_id or record.decision.engine_id}
                if attempts_left == 0:
                    self._give_up(record, failure)
                retried = retried or self._takes_budget(pool, record, failure)
                self._retry(record, failure)
        except (asyncio.CancelledError, ClientGoneError):
            if record is not None:
                self._desk.cancelled(record, monotonic())
            raise
        finally:
            pool.retry_budget.leave(retried=retried)

    async def _attempt(
        self, exchange: Exchange, pool: LivePool, record: DecisionRecord, request: ForwardedRequest, *, last: bool
    ) -> AttemptFailure | None:
        pair = record.decision.pair
        if pair is not None:
            # Two attempts to hand over are enough: on the last one the decode engine computes the prompt itself.
            return await self._handoff.attempt(exchange, pool, record, pair, request, alone=last)
        engine = pool.engines.get(record.decision.engine_id)
        if engine is None:
            return AttemptFailure(CONNECT)
        if request.streams:
            return await self._relay.attempt(exchange, engine, record, request)
        # A whole answer shows no first token. Without one the router would take decoding for prefill and
        # hold the engine's other requests back, so the estimate stands in for it (TTFT is not recorded).
        assumed = asyncio.get_running_loop().call_later(
            record.decision.compute_s + _ASSUMED_PREFILL_MARGIN_S,
            partial(pool.observe, FirstToken(record.decision.decision_id)),
        )
        try:
            return await self._relay.attempt(exchange, engine, record, request)
        finally:
            assumed.cancel()

    def _takes_budget(self, pool: LivePool, record: DecisionRecord, failure: AttemptFailure) -> bool:
        """Return whether the next attempt takes from the budget; raises ApiError where the budget is empty.

        An engine that cannot be reached or stands still is out of rotation at once, so going elsewhere adds no load to
        it and needs no budget; answers that say "too much" or "failed" do.
        """
        if failure.kind in (CONNECT, NO_PROGRESS):
            return False
        if not pool.retry_budget.take():
            self._desk.metrics.retries.inc(record.decision.pool_id, "budget_empty")
            self._give_up(record, failure)
        return True

    def _retry(self, record: DecisionRecord, failure: AttemptFailure) -> None:
        self._desk.released(record)
        self._desk.metrics.retries.inc(record.decision.pool_id, failure.kind)
        log_event(
            "retried",
            decision_id=record.decision.decision_id,
            pool_id=record.decision.pool_id,
            engine_id=failure.engine_id or record.decision.engine_id,
            cause=failure.kind,
            status=failure.status,
        )

    def _give_up(self, record: DecisionRecord, failure: AttemptFailure) -> NoReturn:
        error: ApiError = failure.as_error()
        self._desk.failed(record, monotonic(), error.code)
        raise error


def _wanted(
    decision_id: str, caller: ApiKeyEntry, body: dict[str, Any], exchange: Exchange, arrived_s: float
) -> Wanted:
    headers = exchange.head.headers
    session = body.get("session_id") or headers.get(b"x-session-id", b"").decode("latin-1")
    return Wanted(
        decision_id,
        caller.tenant_id,
        arrived_s,
        ttft_slo_s(headers),
        _whole_number(body, "max_completion_tokens") or _whole_number(body, "max_tokens") or 0,
        session[:256] if isinstance(session, str) else "",
        _whole_number(body, "priority"),
        tbt_slo_s(headers),
        slo_class(headers),
        caller.slo_class,
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
