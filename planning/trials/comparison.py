"""Compare the observed results of two arms: is one worse than the other by more than its threshold?

Both arms share engines and time, so an event that affects one affects the other. The standard error of a difference
therefore comes from its variation between time slices, and is never below that of independent requests. There are many
evaluations, one every other second, so a threshold counts as crossed only at DOUBT standard errors beyond it.

Long prompts take long in either arm. The part of the times to first token that prompt lengths explain is removed before
the comparison (regression adjustment, as CUPED does with data from before a trial: Deng, Xu, Kohavi and Walker 2013),
so that an arm is not blamed for its prompts, and fewer requests reveal a difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from planning.documents.guardrail_document import GuardrailDocument
from planning.trials.arm_window import ArmWindow, bucket_end_s, quantile_s, together

# Evaluated every 2 s, none of 20 seeded runs of two equal arms under bursts is aborted at this (decision 13).
DOUBT = 4.0
"""Standard errors beyond a threshold for it to count as crossed."""
SUSPICION = 1.0
"""Standard errors beyond a threshold at which a canary stops advancing, although it can still be chance."""
LEAST_SLICES = 8
"""Minimum number of slices for estimating how a difference varies between them."""
TAIL_SHARE = 0.1
FINE, SUSPECT, WORSE, TOO_FEW = "fine", "suspect", "worse", "too_few"
LATE, FAILED, TTFT, TAIL = "late", "failed", "ttft", "tail"


class ArmSlice(msgspec.Struct, frozen=True, gc=False):
    """Both arms within the same few seconds."""

    base: ArmWindow
    """The reference arm."""
    tried: ArmWindow


class GuardrailReading(msgspec.Struct, frozen=True, gc=False):
    """One guardrail: both values, their difference, its uncertainty, and the threshold.

    `late` and `failed` are shares. `ttft` is in seconds, and its difference is a ratio at equal prompt lengths. `tail`
    is the share of requests beyond a limit that a tenth of them can exceed.
    """

    guard: str
    base: float | None
    tried: float | None
    difference: float | None
    lower: float | None
    """Lower bound of the difference, beyond reasonable doubt."""
    upper: float | None
    limit: float
    verdict: str
    """fine, suspect (probably beyond the threshold), worse (beyond doubt), or too_few."""


class Comparison(msgspec.Struct, frozen=True, gc=False):
    """All guardrails over one period."""

    readings: tuple[GuardrailReading, ...]
    base_requests: int
    tried_requests: int
    enough: bool

    @property
    def worse(self) -> tuple[GuardrailReading, ...]:
        """Guardrails whose thresholds are crossed beyond doubt."""
        return tuple(reading for reading in self.readings if reading.verdict == WORSE)

    @property
    def fine(self) -> bool:
        """Whether there are enough requests and no threshold appears to be crossed."""
        return self.enough and all(reading.verdict in (FINE, TOO_FEW) for reading in self.readings)


def compare(slices: Sequence[ArmSlice], guardrails: GuardrailDocument) -> Comparison:
    """Return the candidate's results compared with the baseline's."""
    base, tried = together(slice_.base for slice_ in slices), together(slice_.tried for slice_ in slices)
    enough = min(base.judged, tried.judged) >= guardrails.min_requests
    readings = (
        _share(LATE, slices, lambda item: (item.late, item.judged), guardrails.late_more, enough),
        _share(FAILED, slices, lambda item: (item.failed, item.ended), guardrails.failed_more, enough),
        _ttft(slices, base, tried, guardrails),
        _tail(slices, base, tried, guardrails),
    )
    return Comparison(readings, base.judged, tried.judged, enough)


def _share(
    guard: str, slices: Sequence[ArmSlice], count: Callable[[ArmWindow], tuple[int, int]], limit: float, enough: bool
) -> GuardrailReading:
    """Return the difference of two shares."""
    base = [count(slice_.base) for slice_ in slices]
    tried = [count(slice_.tried) for slice_ in slices]
    (base_hits, base_of), (tried_hits, tried_of) = _sums(base), _sums(tried)
    if not base_of or not tried_of or not enough:
        values = (base_hits / base_of if base_of else None, tried_hits / tried_of if tried_of else None)
        return GuardrailReading(guard, *values, None, None, None, limit, TOO_FEW)
    p, q = base_hits / base_of, tried_hits / tried_of
    alike = _binomial(base_hits, base_of) + _binomial(tried_hits, tried_of)
    residuals = [
        (hits - q * of) / tried_of - (others - p * of_others) / base_of
        for (hits, of), (others, of_others) in zip(tried, base, strict=True)
    ]
    # Never below the error of independent requests.
    return _reading(guard, p, q, q - p, math.sqrt(max(alike, _clustered(residuals))), limit)


def _ttft(
    slices: Sequence[ArmSlice], base: ArmWindow, tried: ArmWindow, guardrails: GuardrailDocument
) -> GuardrailReading:
    """Return the ratio of the geometric mean TTFTs at equal prompt lengths."""
    n, m = base.answered, tried.answered
    if min(n, m) < guardrails.min_requests:
        values = (math.exp(base.ttft_log_sum / n) if n else None, math.exp(tried.ttft_log_sum / m) if m else None)
        return GuardrailReading(TTFT, *values, None, None, None, guardrails.ttft_ratio, TOO_FEW)
    slope = _slope(base, tried)
    mean, other = _log_sum(base, slope) / n, _log_sum(tried, slope) / m
    alike = _spread(base, slope) / n + _spread(tried, slope) / m
    residuals = [
        (_log_sum(slice_.tried, slope) - other * slice_.tried.answered) / m
        - (_log_sum(slice_.base, slope) - mean * slice_.base.answered) / n
        for slice_ in slices
    ]
    error = math.sqrt(max(alike, _clustered(residuals)))
    ratio = other - mean
    lower, upper = math.exp(ratio - DOUBT * error), math.exp(ratio + DOUBT * error)
    verdict = _verdict(ratio, error, math.log(guardrails.ttft_ratio))
    values = math.exp(base.ttft_log_sum / n), math.exp(tried.ttft_log_sum / m)
    return GuardrailReading(TTFT, *values, math.exp(ratio), lower, upper, guardrails.ttft_ratio, verdict)


def _slope(base: ArmWindow, tried: ArmWindow) -> float:
    """Return how much the logarithm of TTFT grows with that of the prompt length, within the arms.

    0 if all lengths are equal.
    """
    both = (base, tried)
    # Within each arm, so that a difference between the arms is not taken for an effect of length.
    squares = sum(item.size_log_squares - item.size_log_sum**2 / item.answered for item in both)
    products = sum(item.size_ttft_logs - item.size_log_sum * item.ttft_log_sum / item.answered for item in both)
    # Where all lengths are equal, rounding leaves a trace of squares.
    return products / squares if squares > 1e-9 * base.answered else 0.0


def _log_sum(window: ArmWindow, slope: float) -> float:
    """Return the sum of the logarithms of TTFT minus the part explained by prompt lengths."""
    return window.ttft_log_sum - slope * window.size_log_sum


def _tail(
    slices: Sequence[ArmSlice], base: ArmWindow, tried: ArmWindow, guardrails: GuardrailDocument
) -> GuardrailReading:
    """Return the share of requests beyond the limit that a tenth of them can exceed."""
    slow_s = quantile_s(base, 1 - TAIL_SHARE)
    m = tried.answered
    if slow_s is None or min(base.answered, m) < guardrails.min_requests:
        return GuardrailReading(TAIL, None, None, None, None, None, TAIL_SHARE, TOO_FEW)
    line_s = slow_s * guardrails.tail_ratio
    over = [_over(slice_.tried, line_s) for slice_ in slices]
    share = sum(over) / m
    residuals = [
        (count - share * slice_.tried.answered) / m for count, slice_ in zip(over, slices, strict=True)
    ]  # fmt: skip
    error = math.sqrt(max(_binomial(sum(over), m), _clustered(residuals)))
    return _reading(TAIL, _over(base, line_s) / base.answered, share, share, error, TAIL_SHARE)


def _reading(guard: str, base: float, tried: float, difference: float, error: float, limit: float) -> GuardrailReading:
    lower, upper = difference - DOUBT * error, difference + DOUBT * error
    return GuardrailReading(guard, base, tried, difference, lower, upper, limit, _verdict(difference, error, limit))


def _verdict(difference: float, error: float, limit: float) -> str:
    if difference - DOUBT * error > limit:
        return WORSE
    return SUSPECT if difference - SUSPICION * error > limit else FINE


def _over(window: ArmWindow, line_s: float) -> int:
    """Count the times in buckets completely beyond the limit."""
    return sum(count for bucket, count in window.ttft.items() if bucket > 0 and bucket_end_s(bucket - 1) >= line_s)


def _sums(counts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(hits for hits, _ in counts), sum(of for _, of in counts)


def _binomial(hits: int, of: int) -> float:
    """Return the variance of a share. Never 0, because a rare event can be missing by chance."""
    share = (hits + 0.5) / (of + 1)
    return share * (1 - share) / of


def _spread(window: ArmWindow, slope: float) -> float:
    """Return the variance of the terms of `_log_sum`."""
    squares = window.ttft_log_squares - 2 * slope * window.size_ttft_logs + slope * slope * window.size_log_squares
    mean = _log_sum(window, slope) / window.answered
    # The difference of two large sums may fall below 0 by rounding.
    return max(0.0, squares / window.answered - mean * mean)


def _clustered(residuals: Sequence[float]) -> float:
    """Return the variance of a difference from the slices' deviations from it (Taylor linearization of a ratio)."""
    k = len(residuals)
    return k / (k - 1) * sum(residual * residual for residual in residuals) if k >= LEAST_SLICES else 0.0
