"""Windows of a pool's traffic, derived from its gateways' cumulative totals."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from controlplane.platform.live_fleet.samples import MAX_GATEWAYS
from gateway.contracts.fleet_sample import PoolSample, PoolTotals
from planning.facts.fleet_facts import PoolWindow

SPAN_S = 5.0
KEPT = 240
"""Number of windows kept, twenty minutes in all."""
_COUNTED = ("requests", "on_time", "rejected", "work_s", "prompt_tokens", "recomputed_tokens")


@dataclass(slots=True)
class _Bucket:
    """One time span. It is mutable while it is the newest. Queue figures are each gateway's last report."""

    index: int
    requests: int = 0
    on_time: int = 0
    rejected: int = 0
    work_s: float = 0.0
    prompt_tokens: int = 0
    recomputed_tokens: int = 0
    queued: dict[str, tuple[int, float]] = field(default_factory=dict)
    load_cv: float = 0.0
    engines: int = 0


class PoolWindows:
    """One pool's windows. Mutable state: the buckets, and the last totals of each gateway."""

    def __init__(self) -> None:
        self._buckets: deque[_Bucket] = deque(maxlen=KEPT)
        self._totals: dict[str, PoolTotals] = {}

    def add(self, gateway: str, pool: PoolSample, at: float, engines: int) -> None:
        """Add a gateway's sample of unix second `at`. `engines` is the number of serving engines at that time."""
        if pool.totals is None:
            return
        bucket = self._bucket(int(at // SPAN_S))
        if bucket is None:
            return
        before = self._totals.get(gateway)
        if before is not None or len(self._totals) < MAX_GATEWAYS:
            self._totals[gateway] = pool.totals
        # A gateway that restarted counts from 0 again: its first report is the new baseline.
        if before is not None and pool.totals.requests >= before.requests and pool.totals.work_s >= before.work_s:
            _count(bucket, before, pool.totals)
        bucket.queued[gateway] = (pool.unbound + (pool.bound or 0), pool.queued_s or 0.0)
        bucket.load_cv = pool.load_cv
        bucket.engines = engines

    def windows(self, now_s: float) -> tuple[PoolWindow, ...]:
        """Return the time spans that ended by unix second `now_s`, oldest first."""
        return tuple(_window(bucket) for bucket in self._buckets if (bucket.index + 1) * SPAN_S <= now_s)

    def _bucket(self, index: int) -> _Bucket | None:
        """Return the bucket with this index; None if a sample is too late for it."""
        if self._buckets and index < self._buckets[-1].index:
            return None
        if not self._buckets or index > self._buckets[-1].index:
            self._buckets.append(_Bucket(index))
        return self._buckets[-1]


def _count(bucket: _Bucket, before: PoolTotals, after: PoolTotals) -> None:
    for name in _COUNTED:
        setattr(bucket, name, getattr(bucket, name) + getattr(after, name) - getattr(before, name))


def _window(bucket: _Bucket) -> PoolWindow:
    return PoolWindow(
        from_s=bucket.index * SPAN_S,
        span_s=SPAN_S,
        queued=sum(waiting for waiting, _ in bucket.queued.values()),
        queued_s=sum(seconds for _, seconds in bucket.queued.values()),
        load_cv=bucket.load_cv,
        engines=bucket.engines,
        **{name: getattr(bucket, name) for name in _COUNTED},
    )
