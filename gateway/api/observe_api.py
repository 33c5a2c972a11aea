"""`POST /api/v1/observe`: what others have routed, for pools that only observe.

Observations come when a request is over. They are played back in their order, late by the same time each, so
that the router's ledger holds at each moment what the engines held then.
"""

from __future__ import annotations

import asyncio
from time import monotonic, time
from typing import TYPE_CHECKING

import msgspec

from gateway.api.fleet_visibility import witness_of
from gateway.api.observe_request import LineProblem, Observation, ObserveAnswer, observed_prompt, read_observations
from gateway.api.route_api import unknown_model
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.http.http_exchange import Exchange
from gateway.http.openai_error import ApiError
from gateway.pool.recent_decisions import DecisionRecord
from gateway.requests.gateway_request import gateway_request
from gateway.requests.lifecycle import RequestLifecycle
from gateway.requests.prompt_keys import KeyedPrompt, PromptKeys

if TYPE_CHECKING:
    from gateway.gateway import Gateway
    from gateway.pool.live_pool import LivePool

MAX_WAITING = 100_000
"""Observations that wait to be played back, all pools together."""
_TOLD_PROBLEMS = 20


class ObserveApi:
    """Takes observations and plays them back. Mutable: how many wait."""

    def __init__(self, gateway: Gateway, lifecycle: RequestLifecycle, prompt_keys: PromptKeys) -> None:
        self._gateway = gateway
        self._lifecycle = lifecycle
        self._prompt_keys = prompt_keys
        self._delay_s = gateway.settings.observe_delay_s
        self._count = gateway.metrics.observed.inc
        self._waiting = 0

    async def serve(self, exchange: Exchange, caller: ApiKeyEntry) -> None:
        """Serve one call: 200 with the count of lines taken, 400 where none could be."""
        read = await read_observations(await exchange.body())
        problems: list[LineProblem] = []
        for number, observed in enumerate(read, 1):
            if isinstance(observed, LineProblem):
                problems.append(observed)
                continue
            try:
                await self._take(caller, observed)
            except ApiError as error:
                problems.append(LineProblem(number, error.message))
        if len(problems) == len(read):
            first = problems[0]
            raise ApiError(400, f"No line was accepted. Line {first.line}: {first.message}", "bad_observations")
        answer = ObserveAnswer(len(read) - len(problems), len(problems), problems[:_TOLD_PROBLEMS])
        await exchange.answer(200, msgspec.json.encode(answer))

    async def _take(self, caller: ApiKeyEntry, observed: Observation) -> None:
        """Have one observation played back at its time; raises ApiError where it cannot be used."""
        service = self._gateway.service_for(caller, observed.request.model)
        if service is None:
            raise unknown_model()
        observing = service.observing()
        if not observing:
            raise ApiError(409, "This pool routes its requests; an admin can switch it to observe-only.", "pool_routes")
        named = ((each, engine_named(each, observed.engine)) for each in observing)
        pool, engine_id = next((found for found in named if found[1] is not None), (observing[0], None))
        if engine_id is None:
            self._count(pool.entry.pool_id, "unknown_engine")
            raise ApiError(400, "No engine of this pool has this id, name or address.", "unknown_engine")
        if self._waiting >= MAX_WAITING:
            self._count(pool.entry.pool_id, "too_many")
            raise ApiError(429, "Too many observations are waiting; send fewer.", "too_many")
        decision_id = self._gateway.new_id()
        prompt = observed_prompt(observed, pool.entry.block_tokens, decision_id)
        keyed = await self._prompt_keys.keys(pool, pool.domains.of(caller.tenant_id), prompt, caller.tenant_id)
        wait_s = observed.started_at + self._delay_s - time()
        if wait_s > 2 * self._delay_s:
            raise ApiError(400, "started_at is in the future; check the sender's clock.", "bad_field")
        self._count(pool.entry.pool_id, "accepted" if wait_s >= 0 else "late")
        self._waiting += 1
        loop = asyncio.get_running_loop()
        loop.call_later(max(0.0, wait_s), self._begin, pool, caller, observed, keyed, decision_id)

    def _begin(
        self, pool: LivePool, caller: ApiKeyEntry, observed: Observation, keyed: KeyedPrompt, decision_id: str
    ) -> None:
        """Account for the request as if it were sent at this moment, and see to its first token and its end."""
        self._waiting -= 1
        if self._gateway.pools.get(pool.entry.pool_id) is not pool or not pool.observes:
            return
        engine_id = engine_named(pool, observed.engine)
        now, asked = monotonic(), observed.request
        try:
            request = gateway_request(
                pool.entry, keyed, decision_id, caller.tenant_id, now, asked.ttft_slo_s, asked.max_tokens or 0,
                asked.session_id or "", asked.priority, asked.tbt_slo_s, asked.slo_class or "", caller.slo_class,
                witness=witness_of(caller, pool),
            )  # fmt: skip
            record = None if engine_id is None else self._lifecycle.observed(pool, request, engine_id)
        except ApiError:
            # Longer than the pool takes, or of a class that it does not have.
            record = None
        if record is None:
            self._count(pool.entry.pool_id, "out_of_service")
            return
        record.decided_at = observed.started_at
        loop = asyncio.get_running_loop()
        if observed.ttft_s is not None:
            loop.call_later(min(observed.ttft_s, observed.total_s), self._first_token, record, now + observed.ttft_s)
        loop.call_later(observed.total_s, self._end, record, observed, now + observed.total_s)

    def _first_token(self, record: DecisionRecord, at_s: float) -> None:
        self._lifecycle.first_token(record, at_s)

    def _end(self, record: DecisionRecord, observed: Observation, at_s: float) -> None:
        if observed.outcome == "completed":
            cached, output = observed.cached_tokens, observed.output_tokens
            self._lifecycle.completed(record, at_s, cached_tokens=cached, output_tokens=output)
        elif observed.outcome == "cancelled":
            self._lifecycle.cancelled(record, at_s)
        elif observed.outcome == "client_error":
            self._lifecycle.client_error(record, at_s, 400)
        else:
            self._lifecycle.failed(record, at_s, "reported_by_caller")


def engine_named(pool: LivePool, name: str) -> str | None:
    """Return the id of the engine with this id, name or address (of a rank: with #rank); None where there is none."""
    if name in pool.engines:
        return name
    address = _address(name)
    for engine_id, engine in pool.engines.items():
        entry = engine.entry
        place = _address(entry.url) + ("" if entry.rank is None else f"#{entry.rank}")
        if entry.name == name or place == address:
            return engine_id
    return None


def _address(text: str) -> str:
    return text.removeprefix("http://").removeprefix("https://").partition("/")[0].lower()
