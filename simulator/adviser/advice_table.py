"""Prints advice: the settings that change, what is predicted, who is worse off, and the evidence."""

from __future__ import annotations

from collections.abc import Iterator

from planning.adviser.fleet_shape import ENGINES, PREFILL, FleetShape
from planning.adviser.prediction import COVERAGE, RATIO, AdviceObjective, PredictedChange
from planning.adviser.verdict import Advice, PolicyCandidate, change_words
from routing.values.counted import count
from simulator.command.simulate_table import text_table


def render_advice(advice: Advice) -> str:
    """Return the advice as text."""
    return "\n".join(_lines(advice))


def _lines(advice: Advice) -> Iterator[str]:
    candidate = advice.proposal
    if candidate is None:
        yield f"No proposal. {advice.abstains}."
        candidate = next(iter(advice.rejected), None)
        if candidate is not None:
            yield "The best candidate, which is not proposed:"
    else:
        yield "Proposal"
    if candidate is not None:
        yield from _candidate(advice, candidate)
    yield from _evidence(advice)


def _candidate(advice: Advice, candidate: PolicyCandidate) -> Iterator[str]:
    live, policy = advice.live, candidate.policy
    yield f"  {live.placement.name} + {live.order.name} → {policy.placement.name} + {policy.order.name}"
    if candidate.fleet != advice.fleet:
        yield f"  {_fleet(advice.fleet)} → {_fleet(candidate.fleet)}; the draft policy does not set engines"
    for path, value in candidate.settings.items():
        if not path.endswith(".name") and path not in (ENGINES, PREFILL):
            yield f"  {path} = {value:.6g}" if isinstance(value, float) else f"  {path} = {value}"
    yield ""
    rows = [["objective", "live", "proposed", "change", f"{COVERAGE:.0%} range", "checked"]]
    rows += [_row(change) for change in candidate.changes]
    yield from text_table(rows)
    yield ""
    if candidate.costs:
        yield f"Costs: {'; '.join(candidate.costs)}."
    if candidate.worse:
        yield "On time less often:"
        for group in candidate.worse:
            yield f"  {group.group}: {group.live:.1%} → {group.proposed:.1%} of {count(group.requests, 'request')}"
    else:
        yield f"No tenant or prompt length loses {advice.practical.share * 100:g} points of its on-time share."


def _row(change: PredictedChange) -> list[str]:
    objective = change.objective
    held = "in range" if change.low <= change.measured <= change.high else "outside"
    return [
        objective.title,
        _figure(change.live, objective),
        _figure(change.proposed, objective),
        change_words(change.change, objective),
        f"{change_words(change.low, objective)} … {change_words(change.high, objective)}",
        f"{change_words(change.measured, objective)}, {held}",
    ]


def _fleet(shape: FleetShape) -> str:
    roles = f" ({shape.prefill} prefill, {shape.engines - shape.prefill} decode)" if shape.prefill else ""
    return f"{count(shape.engines, 'engine')}{roles}"


def _figure(value: float, objective: AdviceObjective) -> str:
    if objective.unit == "h":
        return f"{value:,.0f} h"
    if objective.kind == RATIO:
        return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
    return f"{value:.1%}"


def _evidence(advice: Advice) -> Iterator[str]:
    windows, change = advice.windows, advice.windows.change
    yield ""
    if change is not None:
        yield (
            f"Traffic changed at {change.at_s:.0f} s, noticed by {change.noticed_s:.0f} s: {'; '.join(change.signs)}. "
            "Windows before it are not used for prediction."
        )
    yield (
        f"Evidence: {count(advice.candidates, 'candidate')}, {count(advice.runs, 'run')}, {advice.cpu_s:.0f} of "
        f"{advice.budget_s:.0f} CPU seconds{', which ended the search early' if advice.cut_short else ''}."
    )
    yield (
        f"Ranges: prediction intervals from paired differences in {count(len(windows.predict), 'window')} with "
        f"{count(len(advice.seeds), 'seed')} each, for the mean of {len(windows.check)} further. "
        f"They do not cover errors of the engine model."
    )
    yield "Searched in:"
    rows = [["window", "from", "to", "requests", "tok/s"]]
    rows += [
        [
            item.kind,
            f"{item.from_s:.0f} s",
            f"{item.to_s:.0f} s",
            f"{item.requests:,}",
            f"{item.prompt_tokens_per_s:,.0f}",
        ]
        for item in windows.search
    ]
    yield from (f"  {line}" for line in text_table(rows))
