"""Demand per region, computed from the request log, in fully utilized engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from django.db.models import Sum

from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.policies.upgrade import live_routing_of
from controlplane.request_log.models.segment import Retention, Segment
from controlplane.request_log.store.segments import recorded_span, recorded_traffic
from gateway.contracts.traffic_row import TrafficRow
from routing.cost.cost_fit import FittedCost
from routing.cost.cost_model import DecodeCost, PrefillCost
from routing.policy.policy_document import RoutingPolicy
from routing.policy.schema_versions import SchemaError
from routing.values.prepared_struct import prepared

STEP_S = 900.0
"""Close to the step of the paper's Fig. 3. Peaks shorter than a quarter of an hour are averaged out."""
MINUTE_S = 60.0
"""Step of a plan from the last minutes, in which short peaks count in full."""
READ_BYTES = 32 << 20
"""From a longer log, one in n requests is read and counts n times."""
ROWS_APART = 8
"""Limit on skipped rows within a segment, beyond which whole segments are skipped. A quiet fleet has few segments per
step.
"""
MOST_TOGETHER = 256.0
"""Batch size limit if the engine's decode cost sets none."""
UNANSWERED = frozenset({"rejected", "unanswered", "failed"})
"""Outcomes without a logged response, for which the pool's mean response time counts."""


@dataclass(frozen=True, slots=True)
class LoggedDemand:
    """The demand in a span of the log."""

    regions: dict[str, list[float]]
    """Busy engines per region and step of `step_s` seconds."""
    since: float
    """Unix seconds at which the first step begins."""
    until: float
    requests: int
    """Number of requests read."""
    every: int
    """Sampling interval: one of this many requests was read."""
    step_s: float = STEP_S

    def last_days(self, days: float) -> LoggedDemand:
        """Return the demand of the last days; `requests` stays the number of all requests read."""
        steps = max(1, int(days * 86_400 // self.step_s))
        since = max(self.since, self.until - steps * self.step_s)
        return replace(self, regions={name: values[-steps:] for name, values in self.regions.items()}, since=since)


@dataclass(slots=True)
class _PoolWork:
    """Work requested from one pool. Mutable: seconds per step, and the number of missing responses."""

    region: str
    prefill: PrefillCost
    decode: DecodeCost
    tpot_slo_s: float
    seconds: dict[tuple[str, int], float] = field(default_factory=dict)
    """Seconds by region of first contact and step."""
    missing: dict[tuple[str, int], int] = field(default_factory=dict)
    answers: int = 0
    answer_s: float = 0.0

    def add(self, step: int, row: TrafficRow) -> None:
        """Count one request."""
        asked = row.origin or self.region, step
        work_s = self.prefill.seconds(row.prompt_tokens, min(row.cached_tokens or 0, row.prompt_tokens))
        if row.outcome in UNANSWERED:
            self.missing[asked] = self.missing.get(asked, 0) + 1
        else:
            output_tokens = row.output_tokens or 0
            answer_s = output_tokens * self._token_s(row.prompt_tokens + output_tokens / 2)
            self.answers, self.answer_s = self.answers + 1, self.answer_s + answer_s
            work_s += answer_s
        self.seconds[asked] = self.seconds.get(asked, 0.0) + work_s

    def _token_s(self, context_tokens: float) -> float:
        """Return an engine's time per token in the largest batch whose step meets the objective."""
        batch = min(MOST_TOGETHER, max(1.0, self.decode.batch_within(self.tpot_slo_s, context_tokens)))
        return self.decode.seconds(batch, batch * context_tokens) / batch

    def busy(self, step_s: float) -> dict[tuple[str, int], float]:
        """Return how many engines the requests keep busy, per region and step."""
        mean_s = self.answer_s / self.answers if self.answers else 0.0
        return {
            asked: (seconds + self.missing.get(asked, 0) * mean_s) / step_s for asked, seconds in self.seconds.items()
        }


def logged_demand(
    now: float, days: float, progress: Callable[[float], None] = lambda _share: None, step_s: float = STEP_S
) -> LoggedDemand | None:
    """Return the demand of the last `days` before `now` (unix seconds); None: the log is empty.

    `progress` receives the share of the span that has been read, 0..1.

    Only steps that the log covers completely are included. A forwarded request counts in the region of its first
    contact. Requests of deleted pools are left out.
    """
    span = recorded_span()
    if span is None:
        return None
    first, last = int(max(span[0], now - days * 86_400) // step_s) + 1, int(min(span[1], now) // step_s)
    if last <= first:
        return None
    pools = {pool.slug: _pool_work(pool) for pool in _pools()}
    logged = Segment.objects.filter(retention=Retention.TRAFFIC, merged_at_ms=None)
    logged = logged.filter(at_ms__gte=first * step_s * 1000, at_ms__lte=last * step_s * 1000)
    size = logged.aggregate(total=Sum("size"))["total"]
    wanted = -(-(size or 0) // READ_BYTES) or 1
    rows = min(wanted, ROWS_APART)
    segments = -(-wanted // rows)
    every, requests = segments * rows, 0
    for row in recorded_traffic(first * step_s, last * step_s, segments=segments, rows=rows):
        requests += 1
        progress((row.arrived_at - first * step_s) / ((last - first) * step_s))
        if (pool := pools.get(row.pool)) is not None:
            pool.add(int(row.arrived_at // step_s), row)
    regions = _by_region(pools, first, last, every, step_s)
    return LoggedDemand(regions, first * step_s, last * step_s, requests, every, step_s)


def demand_now() -> dict[str, float]:
    """Return the demand per region that Automation last measured, in busy engines; empty if it measured none."""
    runs = JobRun.objects.filter(job="scaling", state=JobState.ACTIVE)
    measured: dict[int, Any] = dict(runs.values_list("shard", "plan__demand"))
    regions: dict[str, float] = {}
    for pool, region in Pool.objects.values_list("pk", "region__slug"):
        if isinstance(demand := measured.get(pool), int | float):
            regions[region] = regions.get(region, 0.0) + demand
    return regions


def _by_region(
    pools: Mapping[str, _PoolWork], first: int, last: int, every: int, step_s: float
) -> dict[str, list[float]]:
    regions: dict[str, list[float]] = {pool.region: [0.0] * (last - first) for pool in pools.values()}
    for pool in pools.values():
        for (region, step), busy in pool.busy(step_s).items():
            regions.setdefault(region, [0.0] * (last - first))[step - first] += every * busy
    return regions


def _pools() -> list[Pool]:
    return list(Pool.objects.select_related("region", "policy__live_version").prefetch_related("learned_costs"))


def _pool_work(pool: Pool) -> _PoolWork:
    policy = RoutingPolicy()
    if pool.policy.live_version is not None:
        try:
            policy = live_routing_of(pool.policy.live_version)
        except (SchemaError, msgspec.ValidationError):
            policy = RoutingPolicy()
    prefill, decode = PrefillCost.of(policy.prefill_cost), DecodeCost.of(policy.decode_cost)
    learned = [msgspec.convert(cost.fitted, prepared(FittedCost)) for cost in pool.learned_costs.all()]
    best = max((item for item in learned if item.better), key=lambda fitted: fitted.samples, default=None)
    if best is not None:
        prefill, decode = best.prefill, best.decode or decode
    return _PoolWork(pool.region.slug, prefill, decode, policy.tpot_slo_s)
