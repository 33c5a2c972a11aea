"""Texts of a what-if: only differences shared by all seeds, most important first, and how far to trust them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controlplane.trials.whatif.result import (
    HIT_RATE,
    ON_TIME,
    TRUSTED_ERROR,
    TTFT_MEAN,
    TTFT_P99,
    Band,
    Difference,
    Side,
    Spread,
    WhatIfResult,
)
from web.shell.say import say
from web.trials.whatif.figures import figure_rows, finding, worst_error
from web.trials.whatif.pictures import band_picture, distribution

CURVE = [0.1 + number / 50 for number in range(101)]


def changed(figure: str, base: float, *drafts: float) -> Difference:
    """Return a figure that has the same value in all seeds of the baseline."""
    changes = [draft - base for draft in drafts]
    sign = -1 if figure in (TTFT_MEAN, TTFT_P99) else 1
    return Difference(
        figure=figure,
        base=Spread(base, base, base),
        draft=Spread(sum(drafts) / len(drafts), min(drafts), max(drafts)),
        change=Spread(sum(changes) / len(changes), min(changes), max(changes)),
        better=sum(sign * change > 0 for change in changes),
        worse=sum(sign * change < 0 for change in changes),
    )


def result(*differences: Difference, **fields: Any) -> WhatIfResult:
    """Return an answer with three seeds."""
    side = Side(figures={}, ttft_quantiles_s=CURVE, answered_share=0.9)
    band = Band(from_tokens=100, to_tokens=2500, requests=40, base=Spread(0.8, 0.8, 0.8), draft=Spread(0.9, 0.85, 0.95))
    known: dict[str, Any] = {
        "requests": 100, "counted": 80, "seeds": 3, "engines": 4, "engine_model": "colocated", "costs": "written",
        "kv_tokens": None, "ttft_slo_s": 1.5, "base": side, "draft": side, "bands": [band],
    }  # fmt: skip
    return WhatIfResult(**{**known, **fields}, differences=list(differences))


def sentence_of(answer: WhatIfResult) -> str:
    whatif = SimpleNamespace(draft=SimpleNamespace(number=7), against="v6")
    return say("trials/whatif/finding.html", result=answer, finding=finding(answer), whatif=whatif)


def test_most_important_change_is_the_finding() -> None:
    answer = result(changed(ON_TIME, 0.943, 0.98, 0.982, 0.984), changed(TTFT_MEAN, 1.0, 0.7, 0.7, 0.8))
    summary = finding(answer).summary
    assert (summary.kind, summary.title) == ("better", "Better on the on-time share")
    assert sentence_of(answer) == (
        "Draft v7 would have had 98.2\u202f% on time instead of 94.3\u202f%; 3 of 3 seeds agree."
    )


def test_drawback_is_named() -> None:
    answer = result(changed(ON_TIME, 0.9, 0.95, 0.95, 0.96), changed(HIT_RATE, 0.7, 0.6, 0.6, 0.6))
    summary = finding(answer).summary
    assert (summary.kind, summary.title) == ("mixed", "Better on the on-time share, worse on cache hits")
    assert sentence_of(answer).endswith("Worse: cache hits, −10.0\u202fpt.")


@pytest.mark.parametrize("drafts", [(0.95, 0.95, 0.89), (0.9, 0.9, 0.9), (0.9003, 0.9002, 0.9004)])
def test_tiny_or_inconsistent_differences_are_not_reported(drafts: tuple[float, ...]) -> None:
    answer = result(changed(ON_TIME, 0.9, *drafts))
    summary = finding(answer).summary
    assert (summary.kind, summary.title) == ("even", "No clear difference on this traffic")
    assert sentence_of(answer).endswith("on time; no difference across all seeds.")


def test_worse_result_is_reported() -> None:
    answer = result(changed(ON_TIME, 0.9, 0.9, 0.9, 0.9), changed(TTFT_MEAN, 1.0, 1.2, 1.3, 1.25))
    summary = finding(answer).summary
    assert (summary.kind, summary.title) == ("worse", "Worse on TTFT")
    assert "a mean TTFT of 1.25\u202fs instead of 1.00\u202fs" in sentence_of(answer)


def test_a_row_that_is_worse_is_in_the_finding() -> None:
    answer = result(changed(ON_TIME, 0.9, 0.95, 0.95, 0.96), changed(TTFT_P99, 4.0, 4.2, 4.3, 4.2))
    assert finding(answer).summary.title == "Better on the on-time share, worse on TTFT p99"
    assert {row.verdict for row in figure_rows(answer)} == {"better", "worse"}
    alone = sentence_of(result(changed(TTFT_P99, 4.0, 4.2, 4.3, 4.2)))
    assert "a p99 TTFT of 4.23\u202fs instead of 4.00\u202fs" in alone


def test_the_largest_error_of_the_model_says_its_direction() -> None:
    simulated = {TTFT_MEAN: Spread(1.02, 1.0, 1.04), TTFT_P99: Spread(3.0, 3.0, 3.0)}
    measured = {TTFT_MEAN: Spread(1.0, 1.0, 1.0), TTFT_P99: Spread(4.0, 4.0, 4.0)}
    sides = [Side(figures=figures, ttft_quantiles_s=CURVE, answered_share=1.0) for figures in (simulated, measured)]
    answer = result(base=sides[0], actual=sides[1], model_error=0.02)
    words = say("trials/whatif/model.html", result=answer, worst=worst_error(answer.base, answer.actual))
    assert words.endswith("At worst, the simulated TTFT p99 is 25.0\u202f% lower than the measured one.")
    assert worst_error(answer.base, None) is None


def test_large_model_error_names_the_figures_to_trust() -> None:
    side = Side(figures={ON_TIME: Spread(0.9, 0.9, 0.9)}, ttft_quantiles_s=CURVE, answered_share=1.0)
    far = {"trusted_error": TRUSTED_ERROR, "model_is_far": True}
    assert say("trials/whatif/model.html", result=result(actual=side, model_error=0.18), **far) == (
        "Model error on this window is 18.0\u202f%, above 15.0\u202f%: trust the ranking, not the magnitudes."
    )
    near = say("trials/whatif/model.html", result=result(actual=side, model_error=0.02))
    assert near == "Model error on this window: mean TTFT 2.0\u202f%."
    assert "Another version" in say("trials/whatif/model.html", result=result(actual=side))
    assert "has no results" in say("trials/whatif/model.html", result=result())


def test_rows_have_value_spread_and_change() -> None:
    (row,) = figure_rows(result(changed(ON_TIME, 0.9, 0.94, 0.95, 0.96)))
    assert say("trials/whatif/label.html", figure=row.figure, slo_s=1.5) == "On time, ≤\u202f1.5\u202fs"
    assert (row.actual, row.base, row.draft, row.draft_spread) == (
        "—",
        "90.0\u202f%",
        "95.0\u202f%",
        "±1.0",
    )
    assert (row.change, row.verdict, row.agree) == ("+5.0\u202fpt", "better", 3)


def test_charts_stay_within_their_frame() -> None:
    picture, bands = distribution(result()), band_picture(result())
    assert [line.side for line in picture.lines] == ["base", "draft"]
    for line in picture.lines:
        points = [tuple(map(float, point.split(","))) for point in line.points.split()]
        assert len(points) == 101
        assert all(0 <= x <= 100 and 0 <= y <= 100 for x, y in points)
        assert points == sorted(points, key=lambda point: point[0])
        assert points[-1][1] == pytest.approx(88 - 0.9 * 83, abs=0.01)
    (mark,) = bands["marks"]
    assert mark["label"] == "100–2.5k"
    assert float(mark["draft"][:-1]) < float(mark["base"][:-1])
    assert picture.rows[2] == ("p50", "1.10\u202fs", "1.10\u202fs")


def test_zero_answered_requests_raise_no_error() -> None:
    empty = Side(figures={}, ttft_quantiles_s=[], answered_share=0.0)
    assert distribution(result(base=empty, draft=empty)).lines == ()
    assert band_picture(result(bands=[]))["marks"] == []
