"""One engine as several gateways see it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from gateway.contracts.fleet_sample import EngineCounts, EngineSample

_OF_THE_SNAPSHOT = ("maintenance", "draining")
"""An operator's word, which the gateways only repeat; one of them may receive it earlier."""
_OUT = ("lost", "quarantined")
"""Each gateway takes an engine out by its own evidence, so others may still serve with it; the worst first."""
_WORST_FIRST = ("degraded", "hot", "starting", "serving", "unknown")
_TRUST = ("blind", "degraded", "exact")


def engine_together(told: Mapping[str, EngineSample]) -> EngineSample:
    """Return one engine from what each gateway, by name, says of it: work adds up, trouble at any of them shows."""
    samples = list(told.values())
    state, reason, since = _state(told)
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
    )


def counts_together(told: Sequence[EngineCounts]) -> EngineCounts | None:
    """Return what several gateways count of one engine; None where none counts."""
    if len(told) <= 1:
        return told[0] if told else None
    return EngineCounts(
        dispatched=sum(item.dispatched for item in told),
        prefilling=sum(item.prefilling for item in told),
        streaming=sum(item.streaming for item in told),
        first_tokens_total=sum(item.first_tokens_total for item in told),
        chunks_total=sum(item.chunks_total for item in told),
        longest_prefill_s=max(item.longest_prefill_s for item in told),
        # Each gateway counts the failures of its own; an engine that serves any of them is not failing.
        failures_in_row=min(item.failures_in_row for item in told),
        rejected_share=_median([(item.rejected_share, item.rejected_samples) for item in told]),
        rejected_samples=sum(item.rejected_samples for item in told),
        slowness=_median([(item.slowness, item.slowness_samples) for item in told]),
        slowness_samples=sum(item.slowness_samples for item in told),
        tpot_s=_median([(item.tpot_s, item.tpot_samples) for item in told]),
        tpot_samples=sum(item.tpot_samples for item in told),
        event_gaps_total=max(item.event_gaps_total for item in told),
    )


def _state(told: Mapping[str, EngineSample]) -> tuple[str, str, float]:
    """Return state, reason and since when: what all say, else the trouble that some have, with their names."""
    by_state = {item.state: item for item in told.values()}
    agreed = next(iter(by_state)) if len(by_state) == 1 else None
    agreed = agreed or next((state for state in _OF_THE_SNAPSHOT if state in by_state), None)
    if agreed is not None:
        return agreed, by_state[agreed].reason, min(item.since for item in told.values() if item.state == agreed)
    out = {name: each for name, each in told.items() if each.state in _OUT}
    if out:
        worst = by_state[next(state for state in _OUT if state in by_state)]
        since = min(item.since for item in out.values())
        if len(out) == len(told):
            return worst.state, worst.reason, since
        return "degraded", f"{worst.state} by {', '.join(out)}, served by others: {worst.reason}", since
    worst = by_state[next(state for state in (*_WORST_FIRST, *by_state) if state in by_state)]
    return worst.state, worst.reason, worst.since


def _median(told: Sequence[tuple[float | None, int]]) -> float | None:
    """Return the median of medians, each counted as often as it has samples, 32 times at most."""
    values = [value for value, samples in told if value is not None for _ in range(min(samples, 32))]
    return statistics.median(values) if values else None
