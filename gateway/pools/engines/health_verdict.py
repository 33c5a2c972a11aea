"""Effect of the snapshot's engine health verdict on the work that an engine receives."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from gateway.contracts.snapshot import EngineEntry

if TYPE_CHECKING:
    from gateway.pools.engines.live_engine import LiveEngine

HEALTHY = "healthy"
QUARANTINED = "quarantined"
PROBATION = "probation"

_STEPS = 10
"""Number of steps in which a growing share is published, so that the router's fleet view rarely changes."""
_LEAST = 0.05


def load_share(entry: EngineEntry, unix: float) -> float:
    """Return the share of its usual load for the engine at unix second `unix`, 0..1 in tenths."""
    if entry.health == QUARANTINED:
        return 0.0
    if entry.health != PROBATION or entry.slow_start_s <= 0 or entry.health_since is None:
        return 1.0
    done = max(0.0, unix - entry.health_since) / entry.slow_start_s
    share = min(1.0, entry.slow_start_from + (1.0 - entry.slow_start_from) * done)
    # The sum keeps a share that is a tenth but for its rounding from losing a step.
    return max(_LEAST, math.floor(share * _STEPS + 1e-9) / _STEPS)


def shares_of(engines: Iterable[LiveEngine], well: Collection[str], unix: float) -> dict[str, float]:
    """Return the shares below 1 by engine id.

    Verdicts that would exclude all engines that are `well` by the gateway's own evidence are ignored: if the prober
    sees all of them unhealthy and the gateway none, the fault is on the prober's path to them.
    """
    shares = {
        engine.entry.engine_id: load_share(engine.entry, unix)
        for engine in engines
        if engine.entry.health in (QUARANTINED, PROBATION)
    }
    if shares and not any(shares.get(engine_id, 1.0) > 0 for engine_id in well):
        return {engine_id: share for engine_id, share in shares.items() if share > 0}
    return shares


def at_slow_start_limit(engines: Iterable[LiveEngine], running: Mapping[str, int], unix: float) -> frozenset[str]:
    """Return the engines in probation that already run their share of the healthy engines' average load.

    `running` are requests by engine id. An engine in probation can always run one request. If no engine is healthy, for
    example after an outage of all, no engine is limited, because no other could serve.
    """
    entries = [engine.entry for engine in engines]
    whole = [running.get(entry.engine_id, 0) for entry in entries if entry.health not in (QUARANTINED, PROBATION)]
    if not whole:
        return frozenset()
    typical = statistics.fmean(whole)
    return frozenset(
        entry.engine_id
        for entry in entries
        if entry.health == PROBATION
        and (share := load_share(entry, unix)) < 1.0
        and running.get(entry.engine_id, 0) >= max(1, math.floor(share * typical))
    )
