"""Engines that health checks consider unhealthy, with the evidence and the available overrides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from controlplane.automation.engine_verdicts import BY_HAND, TRUSTED, held_by_hand
from controlplane.automation.models.engine_health import EngineHealth, HealthState
from controlplane.fleet.models.engine import Engine
from controlplane.platform.format import NARROW_SPACE, Moment, count, duration, moment, sentence, span
from gateway.contracts.fleet_sample import EngineSample

SHOWN = 100
HEALTH = {
    "suspect": ("Suspect", "degraded"),
    "quarantined": ("Quarantined", "quarantined"),
    "probation": ("Returning", "starting"),
    "healthy": ("Healthy", "serving"),
}
"""Word and shape of each verdict."""
NEVER_ANSWERED = ("Never answered", "unknown")


@dataclass(frozen=True, slots=True)
class HealthLine:
    """The health verdict on one engine."""

    engine_id: str
    name: str
    state: str
    """One of healthy, suspect, quarantined, or probation."""
    word: str
    shape: str
    reason: str
    since: Moment | None
    ends: str
    share: str
    """The engine's share of its usual load, as text; empty if it gets its full load."""
    evidence: str
    out: bool
    """Whether the engine gets less than its full load, so that an operator can return it to service."""


def watched(engines: Mapping[int, Engine], seen: Mapping[str, EngineSample], now: datetime) -> list[HealthLine]:
    """Return the engines (by primary key) that need attention, the worst first, in one query."""
    order = [HealthState.QUARANTINED, HealthState.PROBATION, HealthState.SUSPECT, HealthState.HEALTHY]
    rows = [
        row
        for row in EngineHealth.objects.filter(engine__in=engines).exclude(state=HealthState.HEALTHY, code="")
        if row.state != HealthState.HEALTHY or held_by_hand(row, now)
    ]
    rows.sort(key=lambda row: (order.index(HealthState(row.state)), engines[row.engine_id].name))
    return [health_line(engines[row.engine_id], row, seen, now) for row in rows[:SHOWN]]


def engine_health(engine: Engine, sample: EngineSample | None, now: datetime) -> HealthLine:
    """Return the health of an engine; runs one query unless `health` was prefetched."""
    seen = {} if sample is None else {engine.engine_id: sample}
    return health_line(engine, getattr(engine, "health", None), seen, now)


def health_line(
    engine: Engine, row: EngineHealth | None, seen: Mapping[str, EngineSample], now: datetime
) -> HealthLine:
    """Return the health of one engine. Without a verdict, an engine that has ever responded is healthy."""
    state = row.state if row is not None else HealthState.HEALTHY.value
    sample = seen.get(engine.engine_id)
    silent = state == HealthState.HEALTHY and never_answered(sample)
    word, shape = NEVER_ANSWERED if silent else HEALTH[state]
    share = load_share(row, now)
    return HealthLine(
        engine_id=engine.engine_id,
        name=engine.name,
        state=state,
        word="Exempt from health checks"
        if row is not None and row.code == TRUSTED and held_by_hand(row, now)
        else word,
        shape=shape,
        reason=sentence("no answer to probes") if silent else sentence(row.reason) if row is not None else "",
        since=moment(row.since, now) if row is not None else None,
        ends=_ends(row, now),
        share="" if share >= 1.0 else f"{100 * share:.0f}{NARROW_SPACE}%",
        evidence=evidence(sample),
        out=state in (HealthState.QUARANTINED, HealthState.PROBATION),
    )


def never_answered(sample: EngineSample | None) -> bool:
    """Return whether the gateway has contacted the engine and never received a response."""
    return sample is not None and not sample.answered


def load_share(row: EngineHealth | None, now: datetime) -> float:
    """Return the share of its usual load that an engine gets, 0..1."""
    if row is None or row.state not in (HealthState.QUARANTINED, HealthState.PROBATION):
        return 1.0
    if row.state == HealthState.QUARANTINED:
        return 0.0
    if row.slow_start_s <= 0:
        return 1.0
    done = max(0.0, (now - row.since).total_seconds()) / row.slow_start_s
    return min(1.0, row.slow_start_from + (1.0 - row.slow_start_from) * done)


def _ends(row: EngineHealth | None, now: datetime) -> str:
    if row is None:
        return ""
    if row.code == BY_HAND:
        return "until it is returned to service"
    left_s = (row.until - now).total_seconds() if row.until is not None else 0.0
    if row.state == HealthState.QUARANTINED:
        return f"for at least another {span(left_s)}" if left_s > 0 else "until its symptom is gone"
    if row.state == HealthState.PROBATION and row.slow_start_s > 0:
        whole_s = row.slow_start_s - (now - row.since).total_seconds()
        return f"all of its load in {span(whole_s)}" if whole_s > 0 else "all of its load"
    return f"for another {span(left_s)}" if row.code == TRUSTED and left_s > 0 else ""


def evidence(sample: EngineSample | None, *, aged: bool = True) -> str:
    """Return the figures of the newest sample that support a verdict; empty if there are none. `aged`: with its age."""
    if sample is None:
        return ""
    counts = sample.counts
    age = "no report yet" if sample.report_age_s is None else f"report {duration(sample.report_age_s)} old"
    if counts is None:
        return f"{sample.running} running, {age}" if aged else f"{sample.running} running"
    parts = [f"{counts.dispatched} dispatched, {counts.prefilling} in prefill", *([age] if aged else [])]
    if counts.failures_in_row:
        parts.append(f"{counts.failures_in_row} consecutive failures")
    if counts.rejected_share:
        parts.append(f"{100 * counts.rejected_share:.0f} % 4xx answers")
    if counts.slowness is not None:
        parts.append(f"prefills take {counts.slowness:.1f}× the estimate")
    if counts.tpot_s is not None:
        parts.append(f"{duration(counts.tpot_s)} between tokens")
    if counts.event_gaps_total:
        parts.append(f"{count(counts.event_gaps_total, 'gap')} in its events")
    return ", ".join(parts)
