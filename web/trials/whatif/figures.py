"""The figures of a what-if: each with its unit, its spread over the seeds, and its change."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.platform.format import NARROW_SPACE, UNKNOWN, duration, percent, signed
from controlplane.trials.whatif.finding import ABOUT, EVEN, LEAST_POINTS, SHARES, Headline, headline, verdict_of
from controlplane.trials.whatif.result import (
    GOODPUT,
    HIT_RATE,
    ON_TIME,
    TTFT_MEAN,
    TTFT_P50,
    TTFT_P90,
    TTFT_P99,
    Difference,
    Side,
    Spread,
    WhatIfResult,
)

_TIMES = (TTFT_MEAN, TTFT_P50, TTFT_P90, TTFT_P99)
_CHECKED = {
    ON_TIME: "share on time",
    TTFT_MEAN: "mean TTFT",
    TTFT_P50: "median TTFT",
    TTFT_P90: "TTFT p90",
    TTFT_P99: "TTFT p99",
    HIT_RATE: "token hit rate",
}
"""The figures by which the simulation is checked. Others are small shares, whose relative errors mean nothing."""


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One figure of both policies and of the actual run."""

    figure: str
    actual: str
    base: str
    base_spread: str
    draft: str
    draft_spread: str
    change: str
    verdict: str
    """Better, worse, or even."""
    agree: int
    """Number of seeds that agree; 0 if both policies are equal in all."""

    @property
    def about(self) -> str:
        """What the figure is about, within a sentence."""
        return ABOUT[self.figure]


@dataclass(frozen=True, slots=True)
class WhatIfFinding:
    """The finding, which has a verdict only if all seeds agree, with the figure that supports it best."""

    summary: Headline
    main: FigureRow
    price: FigureRow | None
    """The most important figure that is worse, if that is not the main one."""

    @property
    def even(self) -> bool:
        """Whether the main figure shows no difference across all seeds."""
        return self.main.verdict == EVEN


def finding(result: WhatIfResult) -> WhatIfFinding:
    """Return the finding of the runs."""
    summary = headline(result)
    rows = {row.figure: row for row in figure_rows(result)}
    main = (*summary.better, *summary.worse, ON_TIME)[0]
    paid = [name for name in summary.worse if name != main]
    return WhatIfFinding(summary, rows[main], rows[paid[0]] if paid else None)


@dataclass(frozen=True, slots=True)
class ModelMiss:
    """One figure of the simulation against the measured one, in words."""

    about: str
    words: str


def worst_error(simulated: Side, measured: Side | None) -> ModelMiss | None:
    """Return the figure that the simulation misses by the largest share of the measured value; None without any."""
    mine, its = simulated.figures, measured.figures if measured is not None else {}
    both = [name for name in _CHECKED if name in mine and name in its and its[name].mean > 0]
    misses = {name: mine[name].mean / its[name].mean - 1 for name in both}
    if not misses:
        return None
    name = max(misses, key=lambda item: abs(misses[item]))
    return ModelMiss(_CHECKED[name], f"{percent(abs(misses[name]))} {'higher' if misses[name] > 0 else 'lower'}")


def figure_rows(result: WhatIfResult) -> list[FigureRow]:
    """Return all figures, in the order of the result."""
    actual = result.actual.figures if result.actual is not None else {}
    return [
        FigureRow(
            one.figure,
            _value(one.figure, actual[one.figure].mean) if one.figure in actual else UNKNOWN,
            _value(one.figure, one.base.mean),
            _spread(one.figure, one.base),
            _value(one.figure, one.draft.mean),
            _spread(one.figure, one.draft),
            _change(one),
            verdict_of(one, result.seeds),
            max(one.better, one.worse),
        )
        for one in result.differences
    ]


def _value(figure: str, value: float) -> str:
    if figure in SHARES:
        return percent(value)
    if figure in _TIMES:
        return duration(value)
    return f"{value:.1f}{NARROW_SPACE}/s" if figure == GOODPUT else f"{value:.2f}"


def _change(difference: Difference) -> str:
    """Return the change: in percentage points for shares, in percent of the base's value for other figures."""
    change, base = difference.change.mean, difference.base.mean
    if difference.figure in SHARES:
        return f"{signed(change * 100)}{NARROW_SPACE}pt"
    return f"{signed(100 * change / base)}{NARROW_SPACE}%" if base else UNKNOWN


def _spread(figure: str, spread: Spread) -> str:
    """Return half the range over the seeds; empty if negligible."""
    half = (spread.high - spread.low) / 2
    if figure in SHARES:
        return f"±{half * 100:.1f}" if half >= LEAST_POINTS / 2 else ""
    return f"±{_value(figure, half)}" if half > 0.005 * abs(spread.mean) else ""
