"""Words and figures that the pages of all trials share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from web.live.wording import percent

UNKNOWN = "—"


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of a trial; `kind` is better, worse, mixed, even, or empty while nothing can be said."""

    kind: str
    title: str
    sentence: str


def or_dash(value: float | None, words: Callable[[float], str]) -> str:
    """Return the value in words; a dash where it is not known."""
    return UNKNOWN if value is None else words(value)


def share_words(share: float | None) -> str:
    """Return a share in percent; a dash where it is not known."""
    return or_dash(share, percent)


def signed_number(value: float, digits: int = 1) -> str:
    """Return the number with a true sign: +5.0, −1,200; what rounds to nothing has none."""
    rounded = round(value, digits)
    return f"{'+' if rounded > 0 else '−' if rounded < 0 else ''}{abs(rounded):,.{digits}f}"


def tokens_words(tokens: int) -> str:
    """Return a count of tokens with three significant digits when short: 640, 3.6k, 128k, 8.70M."""
    if tokens < 1000:
        return str(tokens)
    if tokens >= 999_500:
        return f"{tokens / 1e6:.2f}M" if tokens < 9_995_000 else f"{tokens / 1e6:,.1f}M"
    return f"{tokens / 1000:.1f}k" if tokens < 99_950 else f"{tokens / 1000:,.0f}k"
