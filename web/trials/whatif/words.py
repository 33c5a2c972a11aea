"""What-if results in words: the finding, and each figure with its spread and its change."""

from __future__ import annotations

from controlplane.platform.format import NARROW_SPACE, UNKNOWN, duration, percent, setting, signed
from controlplane.trials.whatif.finding import ABOUT, EVEN, LEAST_POINTS, SHARES, headline, verdict_of
from controlplane.trials.whatif.result import (
    CV,
    GOODPUT,
    HIT_RATE,
    ON_TIME,
    REJECTED,
    TRUSTED_ERROR,
    TTFT_MEAN,
    TTFT_P50,
    TTFT_P90,
    TTFT_P99,
    Difference,
    Spread,
    WhatIfResult,
)
from web.trials.words import TrialFinding

_TIMES = (TTFT_MEAN, TTFT_P50, TTFT_P90, TTFT_P99)


def finding(result: WhatIfResult, draft: int, base: str) -> TrialFinding:
    """Return the finding. It gives a verdict only if all seeds agree; `base` names the draft's baseline."""
    summary = headline(result)
    by_figure = {difference.figure: difference for difference in result.differences}
    main = (*summary.better, *summary.worse, ON_TIME)[0]
    sentence = " ".join(
        part
        for part in (_sentence(by_figure[main], draft, base, result.seeds), _price(by_figure, summary.worse, main))
        if part
    )
    return TrialFinding(summary.kind, summary.title, sentence)


def model_words(result: WhatIfResult) -> tuple[str, bool]:
    """Return how far the simulation is from the actual run, and whether that is too far to trust its sizes."""
    if result.actual is None:
        return "The recording has no results, so the simulation cannot be checked against it.", False
    if result.model_error is None:
        return "Another version was live then, so the simulation cannot be checked against it.", False
    error = percent(result.model_error)
    if result.model_error > TRUSTED_ERROR:
        return (
            f"Model error on this window is {error}, above {percent(TRUSTED_ERROR)}: trust the ranking, not the "
            "magnitudes.",
            True,
        )
    return f"Model error on this window: mean TTFT {error}.", False


def coarse_words(result: WhatIfResult) -> str:
    """Return a warning if the recording is too coarse for a policy; otherwise empty."""
    if not result.coarse_starts:
        return ""
    return (
        "One of the policies routes by prefix. This recording distinguishes prefixes in blocks of 512 tokens, the pool "
        "in blocks of its own size, so placements may differ. Make a new recording for a closer result."
    )


def figure_rows(result: WhatIfResult) -> list[dict[str, str]]:
    """Return the table of both policies and the actual run; each verdict is better, worse, or even."""
    labels = {
        ON_TIME: f"On time, ≤{NARROW_SPACE}{setting(result.ttft_slo_s)}",
        TTFT_MEAN: "TTFT mean",
        TTFT_P50: "TTFT p50",
        TTFT_P90: "TTFT p90",
        TTFT_P99: "TTFT p99",
        HIT_RATE: "Token hit rate",
        CV: "Load CV, mean",
        REJECTED: "Rejected",
        GOODPUT: "Goodput",
    }
    rows = []
    for difference in result.differences:
        known = result.actual.figures.get(difference.figure) if result.actual is not None else None
        rows.append(
            {
                "label": labels[difference.figure],
                "actual": value_words(difference.figure, known.mean) if known is not None else UNKNOWN,
                "base": value_words(difference.figure, difference.base.mean),
                "base_spread": _spread_words(difference.figure, difference.base),
                "draft": value_words(difference.figure, difference.draft.mean),
                "draft_spread": _spread_words(difference.figure, difference.draft),
                "change": change_words(difference),
                "verdict": verdict_of(difference, result.seeds),
                "agree": f"{max(difference.better, difference.worse)} of {result.seeds}"
                if difference.better or difference.worse
                else "equal",
            }
        )
    return rows


def value_words(figure: str, value: float) -> str:
    """Return a figure with its unit."""
    if figure in SHARES:
        return percent(value)
    if figure in _TIMES:
        return duration(value)
    return f"{value:.1f}{NARROW_SPACE}/s" if figure == GOODPUT else f"{value:.2f}"


def change_words(difference: Difference) -> str:
    """Return the change: in percentage points for shares, in percent of the base's value for other figures."""
    change, base = difference.change.mean, difference.base.mean
    if difference.figure in SHARES:
        return f"{signed(change * 100)}{NARROW_SPACE}pt"
    return f"{signed(100 * change / base)}{NARROW_SPACE}%" if base else UNKNOWN


def _sentence(main: Difference, draft: int, base: str, seeds: int) -> str:
    one, other = value_words(main.figure, main.draft.mean), value_words(main.figure, main.base.mean)
    verdict = verdict_of(main, seeds)
    agree = max(main.better, main.worse)
    seeds_words = f"{agree} of {seeds} seeds agree" if seeds > 1 else "one seed, so the spread is unknown"
    if verdict == EVEN:
        about = ABOUT[main.figure]
        return f"Draft v{draft} and {base} have {one} and {other} {about}; no difference across all seeds."
    said = {
        ON_TIME: f"Draft v{draft} would have had {one} on time instead of {other}",
        HIT_RATE: f"Draft v{draft} would have had a token hit rate of {one} instead of {other}",
        REJECTED: f"Draft v{draft} would have rejected {one} instead of {other}",
    }
    name = "a mean" if main.figure == TTFT_MEAN else "a p90"
    words = said.get(main.figure, f"Draft v{draft} would have had {name} TTFT of {one} instead of {other}")
    return f"{words}; {seeds_words}."


def _price(by_figure: dict[str, Difference], worse: tuple[str, ...], main: str) -> str:
    paid = [name for name in worse if name != main]
    if not paid:
        return ""
    about = ABOUT[paid[0]]
    return f"{about[0].upper()}{about[1:]}: {change_words(by_figure[paid[0]])}."


def _spread_words(figure: str, spread: Spread) -> str:
    """Return half the range over the seeds; empty if negligible."""
    half = (spread.high - spread.low) / 2
    if figure in SHARES:
        return f"±{half * 100:.1f}" if half >= LEAST_POINTS / 2 else ""
    return f"±{half:.2g}" if half > 0.005 * abs(spread.mean) else ""
