"""Change of traffic: from a moment on, the requests differ from all before in rate, lengths, or shared prefixes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Protocol

import msgspec

LEAST_BEFORE, MOST_BEFORE = 3, 4
"""Windows that a change is judged against: the last ones, so that a slow trend is no change."""
CONFIRMING = 2
"""Windows in a row that differ in the same direction. One alone is odd, not a change."""
LIMIT = 5.0
"""Difference, in units of the usual one, from which on a window is other traffic."""
_LEAST_VALUE = 1e-9
_NORMAL = 1.4826
"""Ratio of the standard deviation to the median deviation of a normal distribution."""


class TrafficSign(msgspec.Struct, frozen=True):
    """One property of a window's traffic."""

    name: str
    title: str
    relative: bool
    """Whether it is compared by ratio; else by difference."""
    least: float
    """Smallest usual difference: of logarithms if relative. Smaller ones between few windows are chance."""
    spread: float
    """Standard deviation of one request, of logarithms if relative, as in conversations."""


SIGNS = (
    TrafficSign("requests_per_s", "requests per second", True, 0.12, 1.2),
    TrafficSign("mean_prompt_tokens", "prompt tokens", True, 0.06, 1.2),
    TrafficSign("mean_output_tokens", "output tokens", True, 0.06, 0.8),
    TrafficSign("prefix_share", "share of known prefixes", False, 0.03, 0.6),
)


class WindowSigns(Protocol):
    """The traffic of one window."""

    @property
    def requests(self) -> int: ...
    @property
    def from_s(self) -> float: ...
    @property
    def to_s(self) -> float: ...
    @property
    def requests_per_s(self) -> float: ...
    @property
    def mean_prompt_tokens(self) -> float: ...
    @property
    def mean_output_tokens(self) -> float: ...
    @property
    def prefix_share(self) -> float: ...


class TrafficChange(msgspec.Struct, frozen=True, kw_only=True):
    """When traffic changed and how. Times are in seconds from the start of the trace."""

    at_s: float
    """Start of the first window of the new traffic."""
    noticed_s: float
    """End of the window that confirmed it."""
    signs: tuple[str, ...]
    """What changed, with the median before and the mean since, as text."""


def last_change(windows: Sequence[WindowSigns]) -> TrafficChange | None:
    """Return the last change in these windows, in order of time; None if there is none.

    Windows are compared with those before them, since the previous change. Later windows play no part, so that each
    change is noticed as soon as it would be during a recording.
    """
    start, latest = 0, None
    for number in range(len(windows) - CONFIRMING + 1):
        before, since = windows[max(start, number - MOST_BEFORE) : number], windows[number : number + CONFIRMING]
        if len(before) < LEAST_BEFORE:
            continue
        changed = tuple(text for sign in SIGNS if (text := _changed(sign, before, since)))
        if changed:
            latest = TrafficChange(at_s=since[0].from_s, noticed_s=since[-1].to_s, signs=changed)
            start = number
    return latest


def _changed(sign: TrafficSign, before: Sequence[WindowSigns], since: Sequence[WindowSigns]) -> str:
    """Return how the sign changed, as text; empty if it did not."""
    values = [_value(sign, item) for item in before]
    middle = median(values)
    chance = sign.spread / math.sqrt(min(item.requests for item in since))
    usual = max(_NORMAL * median(abs(value - middle) for value in values), sign.least, chance)
    differences = [(_value(sign, item) - middle) / usual for item in since]
    if max(differences) > -LIMIT and min(differences) < LIMIT:
        return ""
    after = sum(getattr(item, sign.name) for item in since) / len(since)
    if sign.relative:
        return f"{sign.title} {math.exp(middle):,.4g} → {after:,.4g}"
    return f"{sign.title} {middle:.0%} → {after:.0%}"


def _value(sign: TrafficSign, window: WindowSigns) -> float:
    value = float(getattr(window, sign.name))
    return math.log(max(value, _LEAST_VALUE)) if sign.relative else value
