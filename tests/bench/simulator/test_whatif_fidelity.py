"""The agreement metric of the fidelity benchmark."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.live.live_replay import Measured, policy_of
from bench.live.paired_simulation import Pair
from bench.simulator.whatif_fidelity import (
    agreeing_share,
    asked,
    engine_model,
    figures_of,
    middle,
    predicted,
    targets_of,
)
from controlplane.request_log.recordings.recorded_row import RecordedRow
from controlplane.trials.whatif.conditions import ENGINE_MODELS
from controlplane.trials.whatif.plan import BASE
from simulator.runs.run_task import do_task
from simulator.workloads.trace import write_trace
from tests.controlplane.trials.whatif.installation import recorded


def pair(name: str, live_s: float, predicted_s: float) -> Pair:
    return Pair(name, Measured(live_s, 0.5), Measured(predicted_s, 0.5))


def test_only_policies_that_differ_in_live_runs_are_ranked() -> None:
    apart = [pair("a", 1.0, 1.0), pair("b", 2.0, 1.9), pair("c", 1.02, 0.9)]
    assert agreeing_share(apart) == 1.0
    assert agreeing_share([pair("a", 1.0, 2.0), pair("b", 2.0, 1.0)]) == 0.0
    assert agreeing_share([pair("a", 1.0, 2.0)]) == 1.0


def test_targets_cover_ratios_and_ranking() -> None:
    figures = figures_of([pair("a", 1.0, 1.0), pair("b", 2.0, 1.5)])
    assert (figures["worst_ratio_error"], figures["worst_ratio_error_between_policies"]) == (0.25, 0.3333)
    assert {name: target.holds for name, target in targets_of(figures).items()} == {
        "worst_ratio_error": False, "worst_ratio_error_between_policies": False, "ranked_alike_share": True,
    }  # fmt: skip


def test_repeats_are_reduced_to_their_median() -> None:
    assert middle([Measured(1.0, 0.1), Measured(9.0, 0.2), Measured(2.0, 0.3)]) == Measured(2.0, 0.2)


def test_prediction_is_that_of_what_if(tmp_path: Path) -> None:
    rows: list[RecordedRow] = recorded(60)
    window = tmp_path / "window.jsonl.gz"
    write_trace(window, rows)
    one, other = (predicted(name, window, rows, "chunked") for name in ("cache_affinity", "least_cost"))
    assert other.ttft_mean_s < 0.95 * one.ttft_mean_s
    assert predicted("least_cost", window, rows, "chunked") == other


def test_simulation_uses_the_engine_model_closest_to_the_window(tmp_path: Path) -> None:
    rows = [msgspec.structs.replace(row, policy_version=1, output_length=300) for row in recorded(80)]
    window = tmp_path / "window.jsonl.gz"
    write_trace(window, rows)
    policy = policy_of("round_robin")
    for model in ENGINE_MODELS:
        happened_s = do_task(asked(policy, window, rows, (model,)).task(BASE, 0)).ttft_mean_s
        window_rows = [msgspec.structs.replace(row, ttft_s=happened_s) for row in rows]
        assert engine_model(policy, window, window_rows) == model
