"""Pictures of advice: the range of each predicted change, and predicted against measured changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.advice.evidence import AdviceEvidence, EvidenceChange
from controlplane.advice.models.advice_proposal import AdvicePrediction
from planning.adviser.prediction import RATIO, AdviceObjective
from planning.adviser.verdict import change_words
from web.shell.chart import LEFT, RIGHT, Tick, place, x, y

_MOST_GAIN = 10.0
"""Practical sizes at the end of the scale at most; larger changes end there."""


def change_text(change: float, objective: AdviceObjective) -> str:
    """Return a change as text, with the console's minus sign."""
    return change_words(change, objective).replace("-", "−")


@dataclass(frozen=True, slots=True)
class RangeRow:
    """One objective: its figures in words, and the positions of its range. Right is better for all."""

    title: str
    live: str
    proposed: str
    change: str
    range: str
    checked: str
    kind: str
    """better or worse if the whole range is, else even."""
    zero: str
    practical: tuple[str, str]
    start: str
    end: str
    at: str
    checked_at: str


def range_rows(evidence: AdviceEvidence) -> list[RangeRow]:
    """Return the predicted changes on one scale, in units of their practical sizes."""
    ends = [abs(evidence.gain(one, end)) for one, item in evidence.named for end in (item.low, item.high)]
    most = min(_MOST_GAIN, max([2.0, *ends]))

    def across(gain: float) -> str:
        return place(50 + 48 * max(-1.0, min(1.0, gain / most)))

    return [_range_row(evidence, objective, item, across) for objective, item in evidence.named]


def _range_row(evidence: AdviceEvidence, objective: AdviceObjective, item: EvidenceChange, across: Any) -> RangeRow:
    low, high = sorted(evidence.gain(objective, end) for end in (item.low, item.high))
    return RangeRow(
        title=objective.title,
        live=figure_words(item.live, objective),
        proposed=figure_words(item.proposed, objective),
        change=change_text(item.change, objective),
        range=f"{change_text(item.low, objective)} … {change_text(item.high, objective)}",
        checked="" if item.checked is None else change_text(item.checked, objective),
        kind="better" if low > 0 else "worse" if high < 0 else "even",
        zero=across(0.0),
        practical=(across(-1.0), across(1.0)),
        start=across(low),
        end=across(high),
        at=across(evidence.gain(objective, item.change)),
        checked_at="" if item.checked is None else across(evidence.gain(objective, item.checked)),
    )


def figure_words(value: float, objective: AdviceObjective) -> str:
    """Return a figure as text: a share in percent, a time in ms or s, engine hours."""
    if objective.unit == "h":
        return f"{value:,.0f} h"
    if objective.kind == RATIO:
        return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
    return f"{value * 100:.1f} %"


@dataclass(frozen=True, slots=True)
class MeasuredPicture:
    """Predicted (across) against measured (up) changes of one objective; on the diagonal, both are equal."""

    title: str
    diagonal: tuple[str, str, str, str]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    marks: tuple[dict[str, Any], ...]
    within: int
    summary: str


def measured_pictures(
    predictions: Sequence[tuple[AdviceObjective, AdvicePrediction]], objectives: Iterable[AdviceObjective]
) -> list[MeasuredPicture]:
    """Return one picture for each objective with a measured prediction."""
    made = []
    for objective in objectives:
        mine = [item for one, item in predictions if one == objective and item.measured is not None]
        if mine:
            made.append(_measured_picture(objective, mine))
    return made


def _measured_picture(objective: AdviceObjective, mine: Sequence[AdvicePrediction]) -> MeasuredPicture:
    values = [value for item in mine for value in (item.low, item.high, item.measured or 0.0)]
    low, high = min([0.0, *values]), max([0.0, *values])
    pad = 0.05 * (high - low) or 0.01
    low, high = low - pad, high + pad

    def share(value: float) -> float:
        return (value - low) / (high - low)

    marks = tuple(
        {
            "at": place(x(share(item.predicted))),
            "start": place(x(share(item.low))),
            "end": place(x(share(item.high))),
            "up": place(y(share(item.measured or 0.0))),
            "within": item.low <= (item.measured or 0.0) <= item.high,
        }
        for item in mine
    )
    # Without the unit, for which small pictures have no room.
    labels = [(value, f"{value * 100:+.0f}".replace("-", "−")) for value in (low + pad, 0.0, high - pad)]
    labels = [item for item in labels if item[0] == 0.0 or abs(share(item[0]) - share(0.0)) > 0.2]
    within = sum(bool(mark["within"]) for mark in marks)
    return MeasuredPicture(
        f"{objective.title}, {'%' if objective.kind == RATIO else 'pt'}",
        (place(LEFT), place(y(0)), place(RIGHT), place(y(1))),
        tuple(Tick(place(x(share(value))), words) for value, words in labels),
        tuple(Tick(place(y(share(value))), words) for value, words in labels),
        marks,
        within,
        f"{objective.title}: {within} of {len(marks)} measured changes are within their range.",
    )
