"""One stored evaluation of two arms: figures, guardrails, and their inputs."""

from __future__ import annotations

from typing import Any

import msgspec

from planning.facts.reason import Reason
from planning.trials.arm_window import ArmWindow, quantile_s, together
from planning.trials.comparison import ArmSlice, Comparison, GuardrailReading
from routing.values.prepared_struct import prepared

POINT_S = 10.0
MAX_POINTS = 180


class ArmFigures(msgspec.Struct, frozen=True):
    """Results of one arm's requests. Times are in seconds, shares 0..1; None: no data."""

    requests: int
    late_share: float | None
    """Late first tokens; rejected requests are no part of it, except in stored evaluations without a rejected share."""
    failed_share: float | None
    hit_share: float | None
    p50_s: float | None
    p90_s: float | None
    p99_s: float | None
    ttft: dict[int, int] = {}
    """Counts of times to first token, by bucket of planning.trials.arm_window."""
    rejected_share: float | None = None


class EvaluationPoint(msgspec.Struct, frozen=True):
    """Figures of both arms in a span of ten seconds."""

    at: float
    """Unix seconds."""
    base_requests: int
    tried_requests: int
    base_late: float | None
    tried_late: float | None
    base_p50_s: float | None
    tried_p50_s: float | None


class CanaryEvaluation(msgspec.Struct, frozen=True):
    """One evaluation. `base` is the baseline arm."""

    at: float
    action: str
    reasons: tuple[Reason, ...]
    readings: tuple[GuardrailReading, ...]
    base: ArmFigures
    tried: ArmFigures
    points: tuple[EvaluationPoint, ...] = ()


def evaluation_of(
    at: float,
    action: str,
    reasons: tuple[Reason, ...],
    comparison: Comparison,
    slices: list[tuple[float, ArmSlice]],
) -> CanaryEvaluation:
    """Return the evaluation of these slices, which may be from several pools."""
    return CanaryEvaluation(
        at,
        action,
        reasons,
        comparison.readings,
        _figures(together(slice_.base for _, slice_ in slices)),
        _figures(together(slice_.tried for _, slice_ in slices)),
        _points(slices),
    )


def plain(evaluation: CanaryEvaluation) -> dict[str, Any]:
    """Return the evaluation as JSON values."""
    fields: dict[str, Any] = msgspec.to_builtins(evaluation, str_keys=True)
    return fields


def stored_evaluation(stored: Any) -> CanaryEvaluation | None:
    """Return a stored evaluation; None if there is none yet."""
    return msgspec.convert(stored, prepared(CanaryEvaluation), str_keys=True) if stored else None


def _figures(window: ArmWindow) -> ArmFigures:
    return ArmFigures(
        requests=window.judged,
        late_share=window.late_share,
        failed_share=window.failed / window.ended if window.ended else None,
        rejected_share=window.rejected / window.ended if window.ended else None,
        hit_share=window.hit_share,
        p50_s=quantile_s(window, 0.5),
        p90_s=quantile_s(window, 0.9),
        p99_s=quantile_s(window, 0.99),
        ttft=window.ttft,
    )


def _points(slices: list[tuple[float, ArmSlice]]) -> tuple[EvaluationPoint, ...]:
    spans: dict[float, list[ArmSlice]] = {}
    for at, slice_ in slices:
        spans.setdefault(at // POINT_S * POINT_S, []).append(slice_)
    return tuple(_point(at, spans[at]) for at in sorted(spans)[-MAX_POINTS:])


def _point(at: float, slices: list[ArmSlice]) -> EvaluationPoint:
    base, tried = together(slice_.base for slice_ in slices), together(slice_.tried for slice_ in slices)
    return EvaluationPoint(
        at,
        base.judged,
        tried.judged,
        base.late / base.judged if base.judged else None,
        tried.late / tried.judged if tried.judged else None,
        quantile_s(base, 0.5),
        quantile_s(tried, 0.5),
    )
