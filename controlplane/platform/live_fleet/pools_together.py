"""Merges several gateways' samples of one pool."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from gateway.contracts.fleet_sample import PoolSample, PrefixCounts

MAX_PREFIXES = 64


def pool_together(samples: Sequence[PoolSample], load_cv: float) -> PoolSample:
    """Merge the samples of one pool. Rates and queues are added up; shares and percentiles are of all requests.

    `load_cv` is computed from the merged engines. The policy's values are from the newest sample.
    """
    newest = max(samples, key=lambda item: item.policy_version)
    p50_s, p90_s, p99_s = (_percentile(samples, share) for share in (0.50, 0.90, 0.99))
    return msgspec.structs.replace(
        newest,
        unbound=sum(item.unbound for item in samples),
        unbound_tokens=sum(item.unbound_tokens for item in samples),
        oldest_wait_s=max(item.oldest_wait_s for item in samples),
        load_cv=load_cv,
        requests_per_s=math.fsum(item.requests_per_s for item in samples),
        prompt_tokens_per_s=math.fsum(item.prompt_tokens_per_s for item in samples),
        ttft_p50_s=p50_s,
        ttft_p90_s=p90_s,
        ttft_p99_s=p99_s,
        on_time_share=_mean([(item.on_time_share, item.judged) for item in samples]),
        hit_share=_mean([(item.hit_share, item.prompt_tokens_per_s) for item in samples]),
        approximate_share=_mean([(item.approximate_share, item.requests_per_s) for item in samples]),
        late=sum(item.late for item in samples),
        judged=sum(item.judged for item in samples),
        failed=_count([item.failed for item in samples]),
        rejected=_count([item.rejected for item in samples]),
        outcomes=None,
        ttft_count=sum(item.ttft_count for item in samples),
        ttft_points=(),
        observes=all(item.observes for item in samples),
        bound=sum(item.bound or 0 for item in samples),
        dispatched_at_once_per_s=_sum([item.dispatched_at_once_per_s for item in samples]),
        dispatched_waited_per_s=_sum([item.dispatched_waited_per_s for item in samples]),
        queue_wait_mean_s=_mean([(item.queue_wait_mean_s, _dispatches_per_s(item)) for item in samples]),
        # Only the gateways know each wait; the slowest gateway's figure is not below the true one of all.
        queue_wait_p90_s=max(
            (item.queue_wait_p90_s for item in samples if item.queue_wait_p90_s is not None), default=None
        ),
        migrations_per_s=_sum([item.migrations_per_s for item in samples]),
        overtaken_per_s=_sum([item.overtaken_per_s for item in samples]),
        rejections_per_s=_rejections(samples),
        totals=None,
        prefixes=_busiest(prefixes_together(samples)),
        usual_d=max(item.usual_d for item in samples),
        queued_s=_sum([item.queued_s for item in samples]),
        roles=tuple(role for item in samples for role in item.roles),
    )


def _percentile(samples: Sequence[PoolSample], share: float) -> float | None:
    weighted = sorted(
        (value, pool.ttft_count / len(pool.ttft_points)) for pool in samples for value in pool.ttft_points
    )
    wanted, passed = share * math.fsum(weight for _, weight in weighted), 0.0
    for value, weight in weighted:
        passed += weight
        if passed >= wanted - 1e-9:
            return value
    return None


def _mean(weighted: Sequence[tuple[float | None, float]]) -> float | None:
    known = [(value, weight) for value, weight in weighted if value is not None and weight > 0]
    weights = math.fsum(weight for _, weight in known)
    return math.fsum(value * weight for value, weight in known) / weights if known else None


def _sum(values: Sequence[float | None]) -> float | None:
    known = [item for item in values if item is not None]
    return math.fsum(known) if known else None


def _count(values: Sequence[int | None]) -> int | None:
    known = [item for item in values if item is not None]
    return sum(known) if known else None


def _dispatches_per_s(pool: PoolSample) -> float:
    return (pool.dispatched_at_once_per_s or 0.0) + (pool.dispatched_waited_per_s or 0.0)


def _rejections(samples: Sequence[PoolSample]) -> dict[str, float] | None:
    known = [item.rejections_per_s for item in samples if item.rejections_per_s is not None]
    codes = sorted({code for item in known for code in item})
    return {code: math.fsum(item.get(code, 0.0) for item in known) for code in codes} if known else None


def prefixes_together(samples: Sequence[PoolSample]) -> list[PrefixCounts]:
    """Return each prefix once, in the order of first occurrence, with the last reported candidates."""
    by_key: dict[str, PrefixCounts] = {}
    for prefix in (item for pool in samples for item in pool.prefixes):
        before = by_key.get(prefix.key)
        by_key[prefix.key] = prefix if before is None else _prefix_together(before, prefix)
    return list(by_key.values())


def _busiest(prefixes: list[PrefixCounts]) -> tuple[PrefixCounts, ...]:
    by_work = sorted(prefixes, key=lambda prefix: (-sum(prefix.work_s_by_engine.values()), prefix.key))
    return tuple(by_work[:MAX_PREFIXES])


def _prefix_together(one: PrefixCounts, other: PrefixCounts) -> PrefixCounts:
    work_s = dict(one.work_s_by_engine)
    for engine_id, seconds in other.work_s_by_engine.items():
        work_s[engine_id] = work_s.get(engine_id, 0.0) + seconds
    return PrefixCounts(
        key=one.key,
        work_s_by_engine=work_s,
        candidates=other.candidates,
        tokens=max(one.tokens, other.tokens),
        recomputed_tokens=one.recomputed_tokens + other.recomputed_tokens,
    )
