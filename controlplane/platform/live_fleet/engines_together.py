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
    newest = min(samples, key=lambda each: each.report_age_s if each.report_age_s is not None else float("inf"))
    trust = min(samples, key=lambda each: _TRUST.index(each.index_trust) if each.index_trust in _TRUST else 0)
    waits = [each.oldest_bound_s for each in samples if each.oldest_bound_s is not None]
    return msgspec.structs.replace(
        newest,
        incarnation=max(each.incarnation for each in samples),
        state=state,
        reason=reason,
        since=since,
        in_flight_tokens=sum(each.in_flight_tokens for each in samples),
        in_flight_s=sum(each.in_flight_s for each in samples),
        running=sum(each.running for each in samples),
        bound=sum(each.bound for each in samples),
        oldest_bound_s=max(waits) if waits else None,
        index_trust=trust.index_trust,
        index_trust_reason=trust.index_trust_reason,
        counts=counts_together([each.counts for each in samples if each.counts is not None]),
        heard=any(each.heard for each in samples),
    )


def counts_together(told: Sequence[EngineCounts]) -> EngineCounts | None:
    """Return what several gateways count of one engine; None where none counts."""
    if len(told) <= 1:
        return told[0] if told else None
    return EngineCounts(
        dispatched=sum(each.dispatched for each in told),
        prefilling=sum(each.prefilling for each in told),
        streaming=sum(each.streaming for each in told),
        first_tokens_total=sum(each.first_tokens_total for each in told),
        chunks_total=sum(each.chunks_total for each in told),
        longest_prefill_s=max(each.longest_prefill_s for each in told),
        # Each gateway counts the failures of its own; an engine that serves any of them is not failing.
        failures_in_row=min(each.failures_in_row for each in told),
        rejected_share=_median([(each.rejected_share, each.rejected_samples) for each in told]),
        rejected_samples=sum(each.rejected_samples for each in told),
        slowness=_median([(each.slowness, each.slowness_samples) for each in told]),
        slowness_samples=sum(each.slowness_samples for each in told),
        tpot_s=_median([(each.tpot_s, each.tpot_samples) for each in told]),
        tpot_samples=sum(each.tpot_samples for each in told),
        event_gaps_total=max(each.event_gaps_total for each in told),
    )


def _state(told: Mapping[str, EngineSample]) -> tuple[str, str, float]:
    """Return state, reason and since when: what all say, else the trouble that some have, with their names."""
    by_state = {each.state: each for each in told.values()}
    agreed = next(iter(by_state)) if len(by_state) == 1 else None
    agreed = agreed or next((state for state in _OF_THE_SNAPSHOT if state in by_state), None)
    if agreed is not None:
        return agreed, by_state[agreed].reason, min(each.since for each in told.values() if each.state == agreed)
    out = {name: each for name, each in told.items() if each.state in _OUT}
    if out:
        worst = by_state[next(state for state in _OUT if state in by_state)]
        since = min(each.since for each in out.values())
        if len(out) == len(told):
            return worst.state, worst.reason, since
        return "degraded", f"{worst.state} by {', '.join(out)}, served by others: {worst.reason}", since
    worst = by_state[next(state for state in (*_WORST_FIRST, *by_state) if state in by_state)]
    return worst.state, worst.reason, worst.since


def _median(told: Sequence[tuple[float | None, int]]) -> float | None:
    """Return the median of medians, each counted as often as it has samples, 32 times at most."""
    values = [value for value, samples in told if value is not None for _ in range(min(samples, 32))]
    return statistics.median(values) if values else None
