"""The charts that compare two arms, each with its table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from controlplane.platform.format import NARROW_SPACE, clock_time, duration, or_dash, percent
from controlplane.trials.canary.evaluation import ArmFigures, CanaryEvaluation, EvaluationPoint
from planning.trials.arm_window import ArmWindow, bucket_end_s, quantile_s
from web.shell.chart import LEFT, RIGHT, Tick, place, point, y
from web.trials.pictures import Axis, Line, Picture, ttft_picture

_SHARES = (0.5, 0.75, 0.9, 0.95, 0.99)
_ROWS = 12


def distribution(evaluation: CanaryEvaluation) -> Picture | None:
    """Return the cumulative distribution of TTFT; None if neither arm had a request."""
    ends_s = [bucket_end_s(item) for side in (evaluation.base, evaluation.tried) for item in side.ttft]
    if not ends_s:
        return None
    baseline, candidate = evaluation.base, evaluation.tried
    return ttft_picture(
        ends_s,
        lambda x: (*_steps("base", baseline, x), *_steps("draft", candidate, x)),
        ((f"p{item * 100:.0f}", _at(baseline, item), _at(candidate, item)) for item in _SHARES),
        f"Times to first token: half within {_at(candidate, 0.5)} in the canary and "
        f"{_at(baseline, 0.5)} live; 90{NARROW_SPACE}% within {_at(candidate, 0.9)} and {_at(baseline, 0.9)}",
    )


def late_course(evaluation: CanaryEvaluation) -> Picture | None:
    """Return the share of late requests over time, one point per ten seconds; None with fewer than two points."""
    points = evaluation.points
    if len(points) < 2:
        return None
    first, last = points[0].at, points[-1].at
    shares = [item for point in points for item in (point.base_late, point.tried_late) if item is not None]
    top = max(0.1, math.ceil(max(shares, default=0.0) * 10 - 1e-9) / 10)

    def runs(side: str, read: Callable[[EvaluationPoint], float | None]) -> Iterator[Line]:
        """Yield one polyline per period without gaps."""
        stretches: list[list[str]] = [[]]
        for item in points:
            value = read(item)
            if value is None:
                stretches.append([])
                continue
            stretches[-1].append(point(LEFT + (item.at - first) / (last - first) * (RIGHT - LEFT), value / top))
        return (Line(side, " ".join(run)) for run in stretches if run)

    ticks = [(LEFT + 4, first), ((LEFT + RIGHT) / 2, first + (last - first) / 2), (RIGHT - 4, last)]
    return Picture(
        across=tuple(Tick(place(at), clock_time(moment)) for at, moment in ticks),
        up=tuple(Tick(place(y(number)), f"{number * top * 100:g}") for number in (0.0, 0.5, 1.0)),
        lines=(*runs("base", lambda item: item.base_late), *runs("draft", lambda item: item.tried_late)),
        rows=tuple(
            (clock_time(item.at), percent(item.base_late), percent(item.tried_late)) for item in points[-_ROWS:]
        ),
        summary=f"Share of late requests over {duration(last - first)}: at the end "
        f"{percent(points[-1].tried_late)} in the canary, {percent(points[-1].base_late)} live",
    )


def _steps(name: str, side: ArmFigures, x: Axis) -> tuple[Line, ...]:
    total = sum(side.ttft.values())
    if not total:
        return ()
    points, seen = [], 0
    for bucket in sorted(side.ttft):
        points.append(point(x(bucket_end_s(bucket - 1)), seen / total))
        seen += side.ttft[bucket]
        points.append(point(x(bucket_end_s(bucket)), seen / total))
    return (Line(name, " ".join([*points, point(RIGHT, 1.0)])),)


def _at(side: ArmFigures, share: float) -> str:
    return or_dash(quantile_s(ArmWindow(ttft=side.ttft), share), duration)
