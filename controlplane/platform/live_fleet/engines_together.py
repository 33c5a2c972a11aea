"""Merges several gateways' samples of one engine."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.contracts.fleet_sample import EngineCounts, EngineFaults, EngineSample

_OF_THE_SNAPSHOT = ("maintenance", "draining")
"""States set by an operator and repeated by gateways. One gateway may receive them earlier than another."""
_OUT = ("lost", "quarantined")
"""States of engines ejected by a gateway, worst first. Other gateways may still use such an engine."""
_WORST_FIRST = ("degraded", "hot", "starting", "serving", "unknown")
_ADDED = frozenset({"tokenizer_late", "tokenizer_late_s", "broken", "unanswered"})
_TRUST = ("blind", "degraded", "exact")


def engine_together(by_gateway: Mapping[str, EngineSample]) -> EngineSample:
    """Merge the samples of one engine by gateway name. Work is added up, and a problem at any gateway is kept."""
    samples = list(by_gateway.values())
    state, reason, since = _state(by_gateway)
    newest = min(samples, key=lambda sample: sample.report_age_s if sample.report_age_s is not None else float("inf"))
    trust = min(samples, key=lambda sample: _TRUST.index(sample.index_trust) if sample.index_trust in _TRUST else 0)
    waits = [sample.oldest_bound_s for sample in samples if sample.oldest_bound_s is not None]
    return msgspec.structs.replace(
        newest,
        incarnation=max(sample.incarnation for sample in samples),
        state=state,
        reason=reason,
        since=since,
        in_flight_tokens=sum(sample.in_flight_tokens for sample in samples),
        in_flight_s=sum(sample.in_flight_s for sample in samples),
        running=sum(sample.running for sample in samples),
        bound=sum(sample.bound for sample in samples),
        oldest_bound_s=max(waits) if waits else None,
        index_trust=trust.index_trust,
        index_trust_reason=trust.index_trust_reason,
        counts=counts_together([sample.counts for sample in samples if sample.counts is not None]),
        answered=any(sample.answered for sample in samples),
        faults=faults_together([sample.faults for sample in samples if sample.faults is not None]),
    )


def counts_together(counts: Sequence[EngineCounts]) -> EngineCounts | None:
    """Merge several gateways' counts of one engine; None without counts."""
    if len(counts) <= 1:
        return counts[0] if counts else None
    return EngineCounts(
        dispatched=sum(item.dispatched for item in counts),
        prefilling=sum(item.prefilling for item in counts),
        streaming=sum(item.streaming for item in counts),
        first_tokens_total=sum(item.first_tokens_total for item in counts),
        chunks_total=sum(item.chunks_total for item in counts),
        longest_prefill_s=max(item.longest_prefill_s for item in counts),
        # Each gateway counts its own failures; an engine that serves any gateway is not failing.
        failures_in_row=min(item.failures_in_row for item in counts),
        rejected_share=_median([(item.rejected_share, item.rejected_samples) for item in counts]),
        rejected_samples=sum(item.rejected_samples for item in counts),
        slowness=_median([(item.slowness, item.slowness_samples) for item in counts]),
        slowness_samples=sum(item.slowness_samples for item in counts),
        tpot_s=_median([(item.tpot_s, item.tpot_samples) for item in counts]),
        tpot_samples=sum(item.tpot_samples for item in counts),
        event_gaps_total=max(item.event_gaps_total for item in counts),
    )


def faults_together(faults: Sequence[EngineFaults]) -> EngineFaults | None:
    """Merge several gateways' faults of one engine. Each gateway counts its own requests; all see the same process."""
    known: dict[str, Any] = {}
    for name in EngineFaults.__struct_fields__:
        values = [value for item in faults if (value := getattr(item, name)) is not None]
        if values:
            known[name] = sum(values) if name in _ADDED else max(values)
    return EngineFaults(**known) if known else None


def _state(by_gateway: Mapping[str, EngineSample]) -> tuple[str, str, float]:
    """Return state, reason, and start time: the agreed state or, without agreement, the worst one."""
    by_state = {item.state: item for item in by_gateway.values()}
    agreed = next(iter(by_state)) if len(by_state) == 1 else None
    agreed = agreed or next((state for state in _OF_THE_SNAPSHOT if state in by_state), None)
    if agreed is not None:
        return agreed, by_state[agreed].reason, min(item.since for item in by_gateway.values() if item.state == agreed)
    out = {name: sample for name, sample in by_gateway.items() if sample.state in _OUT}
    if out:
        worst = by_state[next(state for state in _OUT if state in by_state)]
        since = min(item.since for item in out.values())
        if len(out) == len(by_gateway):
            return worst.state, worst.reason, since
        return "degraded", f"{worst.state} by {', '.join(out)}, served by others: {worst.reason}", since
    worst = by_state[next(state for state in (*_WORST_FIRST, *by_state) if state in by_state)]
    return worst.state, worst.reason, worst.since


def _median(medians: Sequence[tuple[float | None, int]]) -> float | None:
    """Return the median of medians, each weighted by its number of samples, up to 32."""
    values = [value for value, samples in medians if value is not None for _ in range(min(samples, 32))]
    return statistics.median(values) if values else None
