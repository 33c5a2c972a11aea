"""State of each guardrail: it holds, is broken, or is not yet known, and the time until it will be known.

The comparison aborts on guardrails broken beyond doubt. Continuing requires the opposite: the whole interval must be
within the threshold. In between, more requests are needed; their number follows from how fast the interval narrows.
"""

from __future__ import annotations

import math

import msgspec

from planning.trials.comparison import TTFT, WORSE, GuardrailReading

HOLDS, NOT_YET, BROKEN = "holds", "not_yet", "broken"


class GuardrailCertainty(msgspec.Struct, frozen=True, gc=False):
    """Certainty of one guardrail."""

    guard: str
    verdict: str
    """holds (interval within the threshold), broken (interval beyond it), or not_yet (interval includes it)."""
    wait_s: float | None = None
    """For not_yet: estimated time until it can hold at the current request rate. None without an estimate."""
    beyond: bool = False
    """For not_yet: whether the difference itself is beyond the threshold, so that more requests would not make it
    hold.
    """


def certainty(reading: GuardrailReading, *, requests: int, least: int, since_s: float) -> GuardrailCertainty:
    """Return the certainty of a reading after `requests` of the smaller arm arrived in `since_s` seconds.

    `least` is the minimum number of requests in each arm for any verdict.
    """
    if reading.verdict == WORSE:
        return GuardrailCertainty(reading.guard, BROKEN)
    if reading.difference is None or reading.upper is None:
        wait_s = since_s * max(0, least - requests) / requests if requests else None
        return GuardrailCertainty(reading.guard, NOT_YET, wait_s)
    if reading.upper <= reading.limit:
        return GuardrailCertainty(reading.guard, HOLDS)
    difference, upper, limit = (
        _scaled(reading.guard, item) for item in (reading.difference, reading.upper, reading.limit)
    )
    # The interval narrows around the difference, which is itself beyond the threshold.
    if difference >= limit:
        return GuardrailCertainty(reading.guard, NOT_YET, beyond=True)
    narrower = (upper - difference) / (limit - difference)
    # The interval narrows with the root of the count; around counts of zero, with the count itself.
    more = narrower if not reading.base and not reading.tried else narrower**2
    return GuardrailCertainty(reading.guard, NOT_YET, since_s * (more - 1))


def _scaled(guard: str, value: float) -> float:
    """Return the value on the scale on which its interval is symmetric: logarithmic for ratios."""
    return math.log(value) if guard == TTFT else value
