"""How far a published version has spread: which version each gateway runs for a pool, and since when."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from controlplane.platform.live_fleet.samples import fleet_samples
from controlplane.policies.reading import PolicyAccess, version_of
from gateway.contracts.fleet_sample import FleetSample
from web.shell.say import say


@dataclass(frozen=True, slots=True)
class Reach:
    """The spread of a version. `after_s` is the time from `published_at` to the last gateway; None if unknown."""

    gateways: int
    """Number of gateways that have reported a pool of the policy."""
    reached: int
    """Number of these gateways that run the version in all those pools."""
    after_s: float | None

    @property
    def everywhere(self) -> bool:
        """Whether all reporting gateways run the version."""
        return self.gateways > 0 and self.reached == self.gateways


class VersionWatch:
    """Remembers which version each gateway runs in each pool, and since when. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, dict[str, tuple[int, float | None]]] = {}

    def take(self, gateway: str, sample: FleetSample) -> None:
        """Record the versions that a gateway runs."""
        with self._lock:
            known = self._running.get(gateway)
            seen: dict[str, tuple[int, float | None]] = {}
            for pool in sample.pools:
                version, since = (known or {}).get(pool.pool_id, (None, None))
                if version != pool.policy_version:
                    # The first sample of a gateway states what runs, but not since when.
                    since = sample.at if known is not None else None
                seen[pool.pool_id] = (pool.policy_version, since)
            self._running[gateway] = seen

    def reach(self, pool_ids: Sequence[str], version: int, published_at: float) -> Reach:
        """Return how far the version has spread in the pools; `published_at` is in Unix seconds."""
        with self._lock:
            running = [[pools[pool_id] for pool_id in pool_ids if pool_id in pools] for pools in self._running.values()]
        reported = [item for item in running if item]
        reached = [item for item in reported if all(number == version for number, _ in item)]
        moments = [since for item in reached for _, since in item]
        known = [since for since in moments if since is not None and since >= published_at]
        complete = bool(known) and len(known) == len(moments)
        return Reach(len(reported), len(reached), max(known) - published_at if complete else None)


@cache
def version_watch() -> VersionWatch:
    """Return this process's watch, which follows all gateways."""
    watch = VersionWatch()
    fleet_samples().subscribe_gateways(watch.take)
    return watch


def reach_of(state: PolicyAccess, number: int) -> dict[str, Any] | None:
    """Return whether version `number` runs everywhere, and a sentence about its spread; None if it never was live."""
    version = state.live if state.live_number == number else version_of(state.policy, number)
    if version is None or version.published_at is None:
        return None
    overtaken = state.live_number != number
    slugs = [pool.slug for pool in state.pools]
    reach = version_watch().reach(slugs, number, version.published_at.timestamp())
    facts = {"number": number, "overtaken": overtaken, "done": overtaken or reach.everywhere}
    return {**facts, "words": say("policies/reach.html", **facts, reach=reach, state=state)}
