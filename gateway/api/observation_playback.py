"""Plays observations back in order, all with the same delay. They count toward limits until they end.

Each tenant has a share of the capacity and a timeline that plays one step per event loop cycle. One tenant's traffic
therefore cannot displace or delay the observations of another.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable
from functools import partial
from heapq import heappop, heappush
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from gateway.api.observe_request import AssumedPrompt, Observation
from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.requests.gateway_request import GatewayRequest, with_prompt
from gateway.requests.lifecycle import RequestLifecycle
from gateway.requests.prompt_keys import KeyedPrompt
from gateway.server.http.openai_error import ApiError

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool

MAX_HELD = 100_000
"""Limit of accepted observations that have not ended, divided evenly among the tenants that have any."""
MAX_KEY_BYTES = 128 << 20
"""Limit of the observations' block keys in bytes, divided in the same way."""
PACKED_BYTES, PLAYED_BYTES = 8, 40
"""Bytes of a waiting key, and of a key that the router holds."""

_Step = Callable[[], Awaitable[None] | None]


class HeldObservation(msgspec.Struct):
    """An observation that waits for its time, with packed keys and without its prompt."""

    pool: LivePool
    observed: Observation
    request: GatewayRequest
    """The request as if it arrived at 0 s, without its prompt."""
    keyed: KeyedPrompt
    """The keyed prompt, without the keys."""
    keys: array[int]
    assumed: AssumedPrompt | None = None
    """Computes the keys when the observation is due."""
    seed: int = 0

    @property
    def played_bytes(self) -> int:
        """Return the bytes of its keys during playback."""
        return PLAYED_BYTES * (len(self.keys) if self.assumed is None else self.assumed.blocks)

    async def arrived(self) -> GatewayRequest:
        """Return the request as if it arrived now; raise ApiError if the pool no longer accepts it."""
        keys = tuple(self.keys) if self.assumed is None else await self.assumed.keys(self.seed)
        now, held = monotonic(), self.request
        request = msgspec.structs.replace(held, arrived_s=now, give_up_s=now + held.give_up_s)
        return with_prompt(self.pool.entry, request, msgspec.structs.replace(self.keyed, keys=keys))


class _Timeline:
    """One tenant's observations. Mutable: the scheduled steps, the first step's timer, and the held observations."""

    def __init__(self) -> None:
        self.held = self.key_bytes = 0
        self._steps: list[tuple[float, int, _Step]] = []
        self._added = 0
        self._timer: asyncio.TimerHandle | None = None
        self._playing: asyncio.Task[None] | None = None

    @property
    def next_s(self) -> float:
        """Return the monotonic second of the next step."""
        return self._steps[0][0] if self._steps else 0.0

    def add(self, due_s: float, step: _Step) -> None:
        """Schedule the step at this monotonic second, after all steps with the same or an earlier time."""
        self._added += 1
        # The number breaks ties, since steps cannot be compared.
        heappush(self._steps, (due_s, self._added, step))
        if self._playing is None and self._steps[0][1] == self._added:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._steps:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, self.next_s - monotonic()), self._start)

    def _start(self) -> None:
        self._playing = asyncio.create_task(self._play(), name="observations")
        self._playing.add_done_callback(self._played)

    async def _play(self) -> None:
        while self._steps and self.next_s <= monotonic():
            taken = heappop(self._steps)[2]()
            if taken is not None:
                await taken
            await asyncio.sleep(0)

    def _played(self, playing: asyncio.Task[None]) -> None:
        """Continue with the next step, even after a failed one, unless the loop is closing."""
        self._playing = None
        if not playing.cancelled():
            self._arm()


class ObservationPlayback:
    """Accounts for observed requests as if they were sent now. Mutable: the timelines of tenants with observations."""

    def __init__(self, lifecycle: RequestLifecycle, *, is_live: Callable[[LivePool], bool]) -> None:
        """`is_live` returns whether a pool still exists."""
        self._lifecycle = lifecycle
        self._is_live = is_live
        self._timelines: dict[str, _Timeline] = {}

    def reject_if_full(self, tenant_id: str) -> None:
        """Raise ApiError 429 if the tenant's share is used up."""
        line = self._timelines.get(tenant_id)
        if line is None:
            return
        sharers = len(self._timelines)
        if line.held >= MAX_HELD // sharers or line.key_bytes >= MAX_KEY_BYTES // sharers:
            message = "Too many of your observations are waiting or in progress; send fewer."
            raise ApiError(429, message, "too_many", retry_after_s=max(1.0, line.next_s - monotonic()))

    def add(self, held: HeldObservation, due_s: float) -> None:
        """Schedule the playback of one observation at this monotonic second."""
        line = self._timelines.setdefault(held.request.tenant_id, _Timeline())
        line.held += 1
        line.key_bytes += PACKED_BYTES * len(held.keys)
        line.add(due_s, partial(self._begin, line, held))

    def held(self, tenant_id: str) -> tuple[int, int]:
        """Return the number of the tenant's observations here, and the bytes of their keys."""
        line = self._timelines.get(tenant_id)
        return (0, 0) if line is None else (line.held, line.key_bytes)

    async def _begin(self, line: _Timeline, held: HeldObservation) -> None:
        """Account for the request as if it were sent now, and schedule its first token and its end."""
        line.key_bytes += held.played_bytes - PACKED_BYTES * len(held.keys)
        record = None
        try:
            record = await self._dispatched(line, held)
        finally:
            if record is None:
                self._leave(line, held)
        if record is None:
            return
        now, observed = record.arrived_s, held.observed
        record.arrived_at = observed.started_at
        if observed.ttft_s is not None:
            answered_s = now + observed.ttft_s
            # A reported first token may lie behind the reported end, which would be played first.
            line.add(min(answered_s, now + observed.total_s), partial(self._lifecycle.first_token, record, answered_s))
        line.add(now + observed.total_s, partial(self._end, line, held, record))

    async def _dispatched(self, line: _Timeline, held: HeldObservation) -> DecisionRecord | None:
        """Return the request's record. If it cannot be accounted for, count that and return None."""
        pool = held.pool
        if line.key_bytes > MAX_KEY_BYTES // len(self._timelines):
            self._drop(pool, "too_many")
            return None
        try:
            request = await held.arrived()
        except ApiError:
            # Longer than the pool takes by now, or of a class that it does not have any more.
            self._drop(pool, "out_of_service")
            return None
        engine_id = engine_named(pool, held.observed.engine) if self._is_live(pool) and pool.observes else None
        record = None if engine_id is None else self._lifecycle.observed(pool, request, engine_id)
        if record is None:
            self._drop(pool, "out_of_service")
        return record

    def _drop(self, pool: LivePool, why: str) -> None:
        self._lifecycle.metrics.observed.inc(pool.entry.pool_id, why)

    def _end(self, line: _Timeline, held: HeldObservation, record: DecisionRecord) -> None:
        observed = held.observed
        at_s = record.arrived_s + observed.total_s
        if observed.outcome == "completed":
            cached, output = observed.cached_tokens, observed.output_tokens
            self._lifecycle.completed(record, at_s, cached_tokens=cached, output_tokens=output)
        elif observed.outcome == "cancelled":
            self._lifecycle.cancelled(record, at_s)
        elif observed.outcome == "client_error":
            self._lifecycle.client_error(record, at_s, 400)
        else:
            self._lifecycle.failed(record, at_s, "reported_by_caller")
        self._leave(line, held)

    def _leave(self, line: _Timeline, held: HeldObservation) -> None:
        line.held -= 1
        line.key_bytes -= held.played_bytes
        if not line.held:
            del self._timelines[held.request.tenant_id]


def engine_named(pool: LivePool, name: str) -> str | None:
    """Return the id of the engine with this id, name or address (with #rank for a rank), None if none matches."""
    if name in pool.engines:
        return name
    address = _address(name)
    for engine_id, engine in pool.engines.items():
        entry = engine.entry
        engine_address = _address(entry.url) + ("" if entry.rank is None else f"#{entry.rank}")
        if entry.name == name or engine_address == address:
            return engine_id
    return None


def _address(text: str) -> str:
    return text.removeprefix("http://").removeprefix("https://").partition("/")[0].lower()
