"""Figures of live runs match the request history, and reports of single soaks merge into one result."""

from __future__ import annotations

import pytest

from bench.engines import scaling as scaling_live
from bench.engines.sick_engines import BURST_QPS, BURST_S, PERIOD_S, QPS, fates, rate
from bench.installation.soak_run.collect import result_of
from bench.live.client_history import Asked


def asked(
    number: int, sent_s: float, first_s: float | None, fate: str = "whole", ended_s: float | None = 99.0
) -> Asked:
    return Asked(number, sent_s, True, first_s=first_s, ended_s=ended_s, fate=fate)  # type: ignore[arg-type]


def test_outcomes_count_only_finished_requests() -> None:
    row = fates(
        [
            asked(1, 0.0, 1.0),
            asked(2, 0.0, None, "lost"),
            asked(3, 0.0, 3.0, "broken_off"),
            asked(4, 0.0, None, "lost", None),
        ]
    )
    assert (row["requests"], row["lost_without_first_byte"], row["broken_off"], row["rejected"]) == (3, 1, 1, 0)
    assert (row["ttft_p50_s"], row["ttft_worst_s"]) == (2.0, 3.0)


def test_bursts_start_each_period() -> None:
    assert (rate(0.0), rate(BURST_S), rate(PERIOD_S + 0.1)) == (BURST_QPS, QPS, BURST_QPS)


def test_scaling_row_has_times_of_recovery_and_of_scale_down() -> None:
    grow_s, shrink_s = scaling_live.PHASES[0][1], scaling_live.PHASES[0][1] + scaling_live.PHASES[1][1]
    late_s = grow_s + 2 * scaling_live.STEP_S
    history = [
        asked(number, sent_s := 0.5 * number, sent_s + (9.0 if grow_s <= sent_s < late_s else 0.1))
        for number in range(450)
    ]
    sizes = [(0.0, 4), (late_s, 8), (shrink_s + 30.0, 6), (shrink_s + 50.0, 4)]
    row = scaling_live.row_of(history, sizes)
    assert (row["recovered_after_s"], row["worst_window"], row["most_engines"]) == (late_s - grow_s, 0.0, 8)
    assert (row["few_again_after_s"], row["on_time_after_recovery"], row["on_time_while_shrinking"]) == (50.0, 1.0, 1.0)


def test_reports_of_single_soaks_merge_into_one_result_by_seed() -> None:
    reports = [{"figures": {"seed": seed}, "targets": {"wrong": {"value": 0.0}}} for seed in (2, 1)]
    assert [row["seed"] for row in result_of(reports).rows] == [1, 2]  # type: ignore[arg-type]


def test_phases_fit_into_four_minutes() -> None:
    assert sum(seconds for _, seconds in scaling_live.PHASES) <= 240
    assert scaling_live.SCALING["max_up"] == pytest.approx(scaling_live.MANY - scaling_live.FEW)
