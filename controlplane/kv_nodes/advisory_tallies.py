"""Sums the gateways' advisory counts, and estimates whether advisories would pay off in a pool that ignores them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import msgspec

from controlplane.platform.bus import get_bus
from controlplane.platform.format import count, duration
from gateway.bus.bus import Bus
from gateway.bus.follower_bus import subscribe_to_gateways
from gateway.contracts.advisory import TALLY_TOPIC, AdvisoryTallies, PoolTally, SourceTally, decode_tallies
from gateway.contracts.wire import UnreadableMessageError

MAX_AGE_S = 15.0
"""A gateway that is silent for longer is considered ended."""
MAX_GATEWAYS = 256
LEAST_REQUESTS = 50
"""Minimum number of requests with a session for a verdict."""
LONG_LOAD_S = 0.05
"""A load of this duration comes from a disk or over a slow link. An advisory hides it (research, §4)."""
LONG_PROMPT_TOKENS = 20_000
"""Contexts of this length take as long even from DRAM."""


class TallyIntake:
    """The newest tally of each gateway. Mutable, under a lock, because callbacks run in the publisher's thread."""

    def __init__(self, bus: Bus) -> None:
        self._lock = threading.Lock()
        self._tallies: dict[str, AdvisoryTallies] = {}
        subscribe_to_gateways(bus, TALLY_TOPIC, self._receive)

    def newest(self, now: float) -> list[AdvisoryTallies]:
        """Return the tallies of the gateways that still report. `now` is unix seconds."""
        with self._lock:
            return [item for item in self._tallies.values() if now - item.at <= MAX_AGE_S]

    def _receive(self, name: str, value: bytes) -> None:
        try:
            tallies = decode_tallies(value)
        except UnreadableMessageError:
            return
        with self._lock:
            self._tallies[name] = tallies
            if len(self._tallies) > MAX_GATEWAYS:
                del self._tallies[min(self._tallies, key=lambda item: self._tallies[item].at)]


@cache
def _intake() -> TallyIntake:
    return TallyIntake(get_bus())


@dataclass(frozen=True, slots=True)
class AdvisoryTotals:
    """Totals of all gateways: sources, most received first, and pools by id."""

    sources: tuple[SourceTally, ...]
    pools: tuple[PoolTally, ...]


def advised() -> AdvisoryTotals:
    """Return the gateways' current counts."""
    return together(_intake().newest(time.time()))


def together(tallies: Iterable[AdvisoryTallies]) -> AdvisoryTotals:
    """Merge these tallies into one."""
    sources: dict[tuple[str, str, str], SourceTally] = {}
    pools: dict[str, PoolTally] = {}
    for item in tallies:
        for source in item.sources:
            name = source.pool_id, source.tenant_id, source.source
            sources[name] = _sources_added(sources[name], source) if name in sources else source
        for pool in item.pools:
            pools[pool.pool_id] = _pools_added(pools[pool.pool_id], pool) if pool.pool_id in pools else pool
    by_received = sorted(sources.values(), key=lambda item: (-item.received, item.pool_id, item.tenant_id, item.source))
    return AdvisoryTotals(tuple(by_received), tuple(pools[pool_id] for pool_id in sorted(pools)))


def verdict(pool: PoolTally) -> tuple[bool | None, str]:
    """Return whether advisories would pay off in a pool (None: unknown), and the reason as text."""
    if pool.sessions < LEAST_REQUESTS:
        return None, f"{count(pool.sessions, 'request')} named a session so far. Send x-session-id or session_id."
    tokens, load_s = pool.prompt_tokens / pool.requests, pool.load_s / pool.loads if pool.loads else None
    said = f"Prompts have {count(round(tokens), 'token')} on average"
    if load_s is not None:
        said += f", and loads of KV take {duration(load_s)}"
    if tokens >= LONG_PROMPT_TOKENS or (load_s is not None and load_s >= LONG_LOAD_S):
        return True, f"{said}: an advisory hides that time."
    return False, f"{said}: there is little time to hide."


def _sources_added(one: SourceTally, other: SourceTally) -> SourceTally:
    outcomes = {
        name: one.outcomes.get(name, 0) + other.outcomes.get(name, 0) for name in {**one.outcomes, **other.outcomes}
    }
    return msgspec.structs.replace(
        one,
        received=one.received + other.received,
        outcomes=outcomes,
        bytes_moved=one.bytes_moved + other.bytes_moved,
        bytes_useless=one.bytes_useless + other.bytes_useless,
        saved_tokens=one.saved_tokens + other.saved_tokens,
        engine_bytes=one.engine_bytes + other.engine_bytes,
        useful_share=min(one.useful_share, other.useful_share),
        backs_off=one.backs_off or other.backs_off,
    )


def _pools_added(one: PoolTally, other: PoolTally) -> PoolTally:
    added = {
        name: getattr(one, name) + getattr(other, name)
        for name in PoolTally.__struct_fields__
        if name not in ("pool_id", "rule")
    }
    return msgspec.structs.replace(one, **added)
