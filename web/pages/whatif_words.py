"""How the answer of a what-if reads: the finding, and each figure with its spread and its change."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.whatif.finding import ABOUT, EVEN, LEAST_POINTS, SHARES, headline, verdict_of
from controlplane.whatif.result import (
    CV,
    GOODPUT,
    HIT_RATE,
    ON_TIME,
    REFUSED,
    TRUSTED_ERROR,
    TTFT_MEAN,
    TTFT_P50,
    TTFT_P90,
    TTFT_P99,
    Difference,
    Spread,
    WhatIfResult,
)
from web.live.wording import NARROW_SPACE, duration, percent, setting

_TIMES = (TTFT_MEAN, TTFT_P50, TTFT_P90, TTFT_P99)
_UNKNOWN = "—"


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer in words."""

    kind: str
    title: str
    sentence: str


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One line of the table."""

    label: str
    actual: str
    base: str
    base_spread: str
    draft: str
    draft_spread: str
    change: str
    verdict: str
    """better, worse or even."""
    agree: str


def finding(result: WhatIfResult, draft: int, base: str) -> Finding:
    """Return what the runs found, judged only where all seeds agree; `base` names what the draft is compared with."""
    found = headline(result)
    told = {each.figure: each for each in result.differences}
    main = (*found.better, *found.worse, ON_TIME)[0]
    sentence = " ".join(
        part for part in (_sentence(told[main], draft, base, result.seeds), _price(told, found.worse, main)) if part
    )
    return Finding(found.kind, found.title, sentence)


def model_words(result: WhatIfResult) -> tuple[str, bool]:
    """Say how far the simulation is from what happened, and whether that is too far to read sizes."""
    if result.actual is None:
        return "The recording does not say what happened, so the simulation cannot be checked against it.", False
    if result.model_error is None:
        return "Another version decided then, so the simulation of this one cannot be checked against it.", False
    error = percent(result.model_error)
    if result.model_error > TRUSTED_ERROR:
        return (
            f"Model error on this window is {error}, above {percent(TRUSTED_ERROR)}: read the ranking, not the sizes.",
            True,
        )
    return f"Model error on this window: mean TTFT {error}.", False


def coarse_words(result: WhatIfResult) -> str:
    """Say where the recording is too coarse for a policy; empty where it is not."""
    if not result.coarse_starts:
        return ""
    return (
        "A policy here keeps equal beginnings together. This recording tells beginnings apart in blocks of 512 tokens, "
        "the pool in blocks of its own size, so where prompts go may differ. Record anew for a closer answer."
    )


def figure_rows(result: WhatIfResult) -> list[FigureRow]:
    """Return the table of both policies and what happened."""
    labels = {
        ON_TIME: f"On time, ≤{NARROW_SPACE}{setting(result.ttft_slo_s)}",
        TTFT_MEAN: "TTFT mean",
        TTFT_P50: "TTFT p50",
        TTFT_P90: "TTFT p90",
        TTFT_P99: "TTFT p99",
        HIT_RATE: "Token hit rate",
        CV: "Load CV, mean",
        REFUSED: "Refused",
        GOODPUT: "Goodput",
    }
    rows = []
    for each in result.differences:
        known = result.actual.figures.get(each.figure) if result.actual is not None else None
        rows.append(
            FigureRow(
                label=labels[each.figure],
                actual=value_words(each.figure, known.mean) if known is not None else _UNKNOWN,
                base=value_words(each.figure, each.base.mean),
                base_spread=_spread_words(each.figure, each.base),
                draft=value_words(each.figure, each.draft.mean),
                draft_spread=_spread_words(each.figure, each.draft),
                change=change_words(each),
                verdict=verdict_of(each, result.seeds),
                agree=f"{max(each.better, each.worse)} of {result.seeds}" if each.better or each.worse else "equal",
            )
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
    """Return the change: points of shares, percent of the base's value of others."""
    change, base = difference.change.mean, difference.base.mean
    if difference.figure in SHARES:
        return f"{_signed(change * 100, 1)}{NARROW_SPACE}pt"
    return f"{_signed(100 * change / base, 1)}{NARROW_SPACE}%" if base else _UNKNOWN


def tokens_words(tokens: int) -> str:
    """Return a count of tokens with three significant digits when short: 640, 3.6k, 128k, 8.70M."""
    if tokens < 1000:
        return str(tokens)
    if tokens >= 999_500:
        return f"{tokens / 1e6:.2f}M" if tokens < 9_995_000 else f"{tokens / 1e6:,.1f}M"
    return f"{tokens / 1000:.1f}k" if tokens < 99_950 else f"{tokens / 1000:,.0f}k"


def _sentence(main: Difference, draft: int, base: str, seeds: int) -> str:
    one, other = value_words(main.figure, main.draft.mean), value_words(main.figure, main.base.mean)
    verdict = verdict_of(main, seeds)
    agree = max(main.better, main.worse)
    seeds_words = f"{agree} of {seeds} seeds agree" if seeds > 1 else "one seed, so nothing is known of the spread"
    if verdict == EVEN:
        about = ABOUT[main.figure]
        return f"Draft v{draft} and {base} have {one} and {other} {about}; no difference that all seeds show."
    said = {
        ON_TIME: f"Draft v{draft} would have answered {one} on time instead of {other}",
        HIT_RATE: f"Draft v{draft} would have found {one} of prompt tokens in caches instead of {other}",
        REFUSED: f"Draft v{draft} would have refused {one} instead of {other}",
    }
    name = "a mean" if main.figure == TTFT_MEAN else "a p90"
    words = said.get(main.figure, f"Draft v{draft} would have had {name} TTFT of {one} instead of {other}")
    return f"{words}; {seeds_words}."


def _price(told: dict[str, Difference], worse: tuple[str, ...], main: str) -> str:
    paid = [name for name in worse if name != main]
    if not paid:
        return ""
    about = ABOUT[paid[0]]
    return f"{about[0].upper()}{about[1:]}: {change_words(told[paid[0]])}."


def _spread_words(figure: str, spread: Spread) -> str:
    """Return half the range over the seeds; empty where there is none to speak of."""
    half = (spread.high - spread.low) / 2
    if figure in SHARES:
        return f"±{half * 100:.1f}" if half >= LEAST_POINTS / 2 else ""
    return f"±{half:.2g}" if half > 0.005 * abs(spread.mean) else ""


def _signed(value: float, digits: int) -> str:
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0:
        return text
    return f"{'+' if value > 0 else '−'}{text}"
