"""`POST /api/v1/observe`: accept requests that others routed, for pools that only observe.

An observation is sent after its request has ended. Observations are played back in order
(gateway.api.observation_playback), so that the router's ledger reflects what the engines held at each moment.
"""

from __future__ import annotations

import asyncio
from array import array
from time import monotonic, time
from typing import TYPE_CHECKING

import msgspec

from gateway.access.isolation_domains import SHARED
from gateway.api.fleet_visibility import witness_of
from gateway.api.observation_playback import HeldObservation, ObservationPlayback, engine_named
from gateway.api.observe_request import (
    AssumedPrompt,
    LineProblem,
    Observation,
    ObserveAnswer,
    numbered_lines,
    observed_prompt,
    read_observation,
)
from gateway.api.route_api import unknown_model
from gateway.api.route_request import RouteRequest
from gateway.contracts.key_source import HASHES
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.requests.caller_facts import NO_FACTS, with_fields
from gateway.requests.gateway_request import GatewayRequest, gateway_request, with_prompt
from gateway.requests.lifecycle import RequestLifecycle
from gateway.requests.prompt_keys import KeyedPrompt, PromptKeys, least_tokens
from gateway.server.http.http_exchange import JSON, Exchange
from gateway.server.http.openai_error import ApiError

if TYPE_CHECKING:
    from gateway.gateway import Gateway
    from gateway.pools.pool.live_pool import LivePool

_REPORTED_PROBLEMS = 20
_NO_PROMPT = RouteRequest(model="-")
"""Replaces the prompt after its keys are computed."""


class ObserveApi:
    """Accepts observations. Each line counts as one request of the API key."""

    def __init__(self, gateway: Gateway, lifecycle: RequestLifecycle, prompt_keys: PromptKeys) -> None:
        self._gateway = gateway
        self._prompt_keys = prompt_keys
        self._delay_s = gateway.settings.observe_delay_s
        self._count = gateway.metrics.observed.inc
        self.playback = ObservationPlayback(
            lifecycle, is_live=lambda pool: gateway.pools.get(pool.entry.pool_id) is pool
        )

    async def serve(self, exchange: Exchange, caller: ApiKeyEntry) -> None:
        """Serve one call: 200 with the count of accepted lines, 400 or 429 if none was accepted.

        Reading stops at the first line over a limit; the answer names that line.
        """
        lines = numbered_lines(await exchange.body())
        problems: list[LineProblem] = []
        accepted, full, resend_from = 0, None, 0
        for number, line in lines:
            try:
                self._gateway.key_quotas.spend(caller, monotonic())
                await self._take(caller, await read_observation(line))
                accepted += 1
            except ApiError as error:
                if error.status == 429:
                    full, resend_from = error, number
                    break
                problems.append(LineProblem(number, error.message))
            # Each line has a turn of the event loop to itself.
            await asyncio.sleep(0)
        if full is None and not accepted:
            first = problems[0]
            raise ApiError(400, f"No line was accepted. Line {first.line}: {first.message}", "bad_observations")
        if full is None:
            answer = ObserveAnswer(accepted, len(lines) - accepted, problems[:_REPORTED_PROBLEMS])
            await exchange.answer(200, msgspec.json.encode(answer))
            return
        if resend_from == lines[0][0]:
            raise full
        unread = LineProblem(resend_from, f"This line and the following lines were not read. {full.message}")
        problems = [*problems[: _REPORTED_PROBLEMS - 1], unread]
        answer = ObserveAnswer(accepted, len(lines) - accepted, problems, resend_from)
        await exchange.answer(200, msgspec.json.encode(answer), (JSON, *full.headers))

    async def _take(self, caller: ApiKeyEntry, observed: Observation) -> None:
        """Schedule the playback of one observation; raise ApiError if it is unusable or over a limit."""
        pool = self._pool(caller, observed)
        wait_s = observed.started_at + self._delay_s - time()
        if wait_s > 2 * self._delay_s:
            raise ApiError(400, "started_at is in the future; check the sender's clock.", "bad_field")
        decision_id = self._gateway.new_id()
        prompt = observed_prompt(observed, pool.entry.block_tokens, decision_id)
        assumed = prompt if isinstance(prompt, AssumedPrompt) else None
        least = prompt.prompt_tokens if isinstance(prompt, AssumedPrompt) else least_tokens(pool.entry, prompt)
        request = self._request(pool, caller, observed, decision_id)
        # No key is made for an observation that is over a limit.
        with_prompt(pool.entry, request, KeyedPrompt((), least, HASHES))
        self._reject_if_full(pool, caller)
        domain, lora = pool.domains.of(caller.tenant_id), pool.names.lora(observed.request.model)
        if isinstance(prompt, AssumedPrompt):
            keyed = KeyedPrompt((), prompt.prompt_tokens, HASHES, domain != SHARED)
        else:
            keyed = await self._prompt_keys.keys(pool, domain, prompt, caller.tenant_id, lora)
            with_prompt(pool.entry, request, keyed)
            self._reject_if_full(pool, caller)
        observed.request = _NO_PROMPT
        self._count(pool.entry.pool_id, "accepted" if wait_s >= 0 else "late")
        bare, keys = msgspec.structs.replace(keyed, keys=()), array("Q", keyed.keys)
        held = HeldObservation(pool, observed, request, bare, keys, assumed, pool.seed(domain, lora))
        self.playback.add(held, monotonic() + wait_s)

    def _pool(self, caller: ApiKeyEntry, observed: Observation) -> LivePool:
        """Return the pool that has the engine; raise ApiError if no observing pool has it."""
        service = self._gateway.service_for(caller, observed.request.model)
        if service is None:
            raise unknown_model()
        observing = service.observing()
        if not observing:
            raise ApiError(409, "This pool routes its requests; an admin can switch it to observe-only.", "pool_routes")
        pool = next((item for item in observing if engine_named(item, observed.engine) is not None), None)
        if pool is None:
            self._count(observing[0].entry.pool_id, "unknown_engine")
            raise ApiError(400, "No engine of this pool has this id, name or address.", "unknown_engine")
        return pool

    def _reject_if_full(self, pool: LivePool, caller: ApiKeyEntry) -> None:
        try:
            self.playback.reject_if_full(caller.tenant_id)
        except ApiError:
            self._count(pool.entry.pool_id, "too_many")
            raise

    @staticmethod
    def _request(pool: LivePool, caller: ApiKeyEntry, observed: Observation, decision_id: str) -> GatewayRequest:
        asked = observed.request
        return gateway_request(
            pool.entry, None, decision_id, caller, 0.0, with_fields(NO_FACTS, asked), asked.max_tokens or 0,
            witness=witness_of(caller, pool), model=asked.model, adapter=pool.names.lora(asked.model),
        )  # fmt: skip
