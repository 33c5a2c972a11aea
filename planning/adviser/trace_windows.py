"""Windows of a trace: a policy is searched on some that differ, predicted from others, and checked on the rest.

Windows before the last change of traffic are not used.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from statistics import fmean, median

import msgspec

from planning.adviser.traffic_change import TrafficChange, last_change

BUSIEST, QUIETEST, ODD, TYPICAL, FURTHER = "busiest", "quietest", "odd", "typical", "further"
MOST_SLICES = 16
LEAST_SLICES = 12
ROWS_PER_SLICE = 150
LEAST_REQUESTS = 30
"""Minimum requests of a window; a share of fewer says little."""
LEAST_WINDOWS = 8
WARMUP_SLICES = 2
"""Traffic before a window that fills caches and queues and is not counted, in window lengths. With empty caches, the
gain of keeping prefixes would be predicted too low.
"""


class ShortTraceError(ValueError):
    """The trace has too few windows with enough requests."""


class TraceWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Rows `first` to `last` (exclusive) of a trace, the first `warmup` of which are not counted."""

    kind: str
    first: int
    last: int
    warmup: int
    from_s: float
    """Start of the counted part, in seconds from the start of the trace."""
    to_s: float
    prompt_tokens_per_s: float
    mean_prompt_tokens: float
    mean_output_tokens: float
    prefix_share: float = 0.0
    """Share of prompt tokens whose prefix occurred earlier in the trace."""

    @property
    def requests_per_s(self) -> float:
        """Counted requests per second."""
        return self.requests / (self.to_s - self.from_s)

    @property
    def requests(self) -> int:
        """Number of counted requests."""
        return self.last - self.first - self.warmup


class WindowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The windows by use; no window has two uses."""

    search: tuple[TraceWindow, ...]
    """Busiest, typical, quietest, odd: candidates are compared in this order."""
    predict: tuple[TraceWindow, ...]
    check: tuple[TraceWindow, ...]
    change: TrafficChange | None = None
    """The last change of traffic. All windows are after it, with their warm-up."""


class TraceColumns(msgspec.Struct, frozen=True):
    """The requests of a trace in order of time."""

    times_s: Sequence[float]
    prompts: Sequence[int]
    """Prompt tokens."""
    outputs: Sequence[int]
    """Output tokens."""
    known: Sequence[int]
    """Prompt tokens whose prefix occurred earlier in the trace."""


def window_plan(columns: TraceColumns) -> WindowPlan:
    """Return the windows after the last change of traffic; raise ShortTraceError."""
    windows, change = _windows(columns, columns.times_s[0] if columns.times_s else 0.0), None
    while (later := last_change(windows)) is not None:
        change = later
        # Cut again: the part after the change would have few windows.
        windows = _windows(columns, columns.times_s[0] + change.at_s)
    if len(windows) < LEAST_WINDOWS:
        since = f" since its traffic changed at {change.at_s:.0f} s" if change else ""
        raise ShortTraceError(
            f"the trace has {len(windows)} windows of {LEAST_REQUESTS} requests or more{since}; {LEAST_WINDOWS} are "
            f"needed"
        )
    rest = sorted(windows, key=lambda item: item.prompt_tokens_per_s)
    quietest, busiest = rest.pop(0), rest.pop()
    odd = max(rest, key=lambda item: (_distance(item, windows), -item.first))
    rest.remove(odd)
    typical = min(rest, key=lambda item: (_distance(item, windows), item.first))
    rest.remove(typical)
    search = ((busiest, BUSIEST), (typical, TYPICAL), (quietest, QUIETEST), (odd, ODD))
    rest.sort(key=lambda item: item.first)
    return WindowPlan(
        search=tuple(msgspec.structs.replace(item, kind=kind) for item, kind in search),
        # Alternating, so that both have all hours of the trace.
        predict=tuple(item for number, item in enumerate(rest) if number % 3 != 1),
        check=tuple(rest[1::3]),
        change=change,
    )


def _windows(columns: TraceColumns, start: float) -> list[TraceWindow]:
    """Return slices of equal duration from `start` with enough requests; the first ones only warm up the next."""
    times_s = columns.times_s
    rows = len(times_s) - bisect_left(times_s, start)
    slices = max(LEAST_SLICES, min(MOST_SLICES, rows // ROWS_PER_SLICE))
    length_s = (times_s[-1] - start) / slices if rows else 0.0
    made = []
    for number in range(WARMUP_SLICES, slices):
        from_s = start + number * length_s
        counted, first = bisect_left(times_s, from_s), bisect_left(times_s, from_s - WARMUP_SLICES * length_s)
        last = bisect_left(times_s, from_s + length_s) if number < slices - 1 else len(times_s)
        if last - counted < LEAST_REQUESTS:
            continue
        made.append(
            TraceWindow(
                kind=FURTHER,
                first=first,
                last=last,
                warmup=counted - first,
                from_s=from_s - times_s[0],
                to_s=from_s - times_s[0] + length_s,
                prompt_tokens_per_s=sum(columns.prompts[counted:last]) / length_s,
                mean_prompt_tokens=fmean(columns.prompts[counted:last]),
                mean_output_tokens=fmean(columns.outputs[counted:last]),
                prefix_share=sum(columns.known[counted:last]) / sum(columns.prompts[counted:last]),
            )
        )
    return made


def _distance(window: TraceWindow, windows: Sequence[TraceWindow]) -> float:
    """Return how far the window's traffic is from the median, each property in units of its median deviation."""
    total = 0.0
    for name in ("prompt_tokens_per_s", "mean_prompt_tokens", "mean_output_tokens"):
        values = [math.log1p(getattr(item, name)) for item in windows]
        middle = median(values)
        # Where most windows are alike, a difference of a few percent is not odd.
        scale = max(median(abs(value - middle) for value in values), 0.05)
        total += ((math.log1p(getattr(window, name)) - middle) / scale) ** 2
    return total
