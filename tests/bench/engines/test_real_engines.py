"""Workloads and verdict of bench.engines.real_engines. Its engines run in `make test-vllm` and in the benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.engines.profile.torch_model import SHAPES
from bench.engines.real_engines import verdict
from bench.engines.real_engines_run.answers import Answered, RunFigures, figures
from bench.engines.real_engines_run.conversations import MAX_WORDS, conversations, hot_prefix
from bench.engines.real_engines_run.repeats import Repeats
from bench.engines.real_engines_run.routers import APPROXIMATE, OURS, RIVALS, UNQUEUED
from bench.engines.real_engines_run.shaped_model import shaped


def test_same_seed_gives_same_requests_and_turns_repeat_their_history() -> None:
    asked = conversations(200, 3)
    assert asked == conversations(200, 3)
    assert asked != conversations(200, 4)
    assert [item.at for item in asked] == sorted(item.at for item in asked)
    assert asked[-1].at == pytest.approx(200)
    words = [sum(len(message["content"].split()) for message in one.messages) for one in asked]
    assert min(words) < 500
    assert 2500 < max(words) <= MAX_WORDS
    later = [one for one in asked if len(one.messages) > 3]
    assert any(two.messages[: len(one.messages)] == one.messages for one in asked for two in later if one is not two)


def test_each_run_has_its_own_prompts() -> None:
    (one,) = conversations(1, 3)
    bodies = [json.loads(one.body("m", run)) for run in ("a", "b")]
    assert bodies[0]["messages"][0]["content"][0] != bodies[1]["messages"][0]["content"][0]
    assert bodies[0]["messages"][1:] == bodies[1]["messages"][1:]


def test_request_without_a_response_is_late() -> None:
    answers = [Answered(1.0, 100, 50), Answered(3.0, 100, 0), Answered(float("inf"))]
    measured = figures(answers, 2.0, 0.1)
    assert (measured.ttft_p50_s, measured.cached_share, measured.on_time_share, measured.failed) == (
        3.0,
        0.25,
        1 / 3,
        1,
    )


def test_response_with_slow_tokens_is_late() -> None:
    answers = [Answered(1.0, 100, 50, 0.05), Answered(1.0, 100, 0, 0.2)]
    assert figures(answers, 2.0, 0.1).on_time_share == 0.5


def test_requests_of_the_hot_prefix_share_only_that_prefix() -> None:
    asked = hot_prefix(50, 3)
    assert len({one.messages[0]["content"] for one in asked}) == 1
    assert len({one.messages[1]["content"] for one in asked}) == 50
    assert asked[-1].at == pytest.approx(50)
    assert json.loads(asked[0].body("m", "a"))["max_tokens"] == 128


def run(on_time_share: float) -> RunFigures:
    return RunFigures(1.0, 2.0, 0.01, 0.02, 0.5, on_time_share, 0, 100)


def test_verdict_uses_the_rate_at_which_the_best_rival_is_nearest_to_90_percent() -> None:
    shares = {
        OURS: {1.0: [0.99, 0.98, 0.97], 2.0: [0.7, 0.8, 0.9]},
        UNQUEUED: {1.0: [0.9] * 3, 2.0: [0.6] * 3},
        APPROXIMATE: {1.0: [0.9] * 3, 2.0: [0.6] * 3},
        RIVALS[0]: {1.0: [0.5] * 3, 2.0: [0.4] * 3},
        RIVALS[1]: {1.0: [0.92, 0.9, 0.88], 2.0: [0.7, 0.6, 0.5]},
        RIVALS[2]: {1.0: [0.8] * 3, 2.0: [0.3] * 3},
    }
    results = {
        name: {rate: [run(item) for item in some] for rate, some in rates.items()} for name, rates in shares.items()
    }
    reported, lead = verdict(results)
    assert reported["rate_that_counts"] == 1.0
    assert lead == reported["headway_1_lead"] == pytest.approx(0.08)
    assert reported["headway_2_lead_least"] == pytest.approx(0.0)


def test_repeats_of_several_sessions_merge_unless_their_commits_differ(tmp_path: Path) -> None:
    here = {"commit": "abc", "rates": [0.8, 1.2], "seed": 17}
    first = {OURS: {0.8: run(0.9), 1.2: RunFigures(1.0, float("inf"), 0.01, 0.02, 0.5, 0.8, 3, 100)}}
    Repeats(tmp_path, here).keep(1, first, {"busy_before": 0.1})
    sitting = Repeats(tmp_path, here)
    assert sitting.missing(3) == [0, 2]
    with pytest.raises(LookupError, match="repeat 0"):
        sitting.together(3)
    for number in sitting.missing(3):
        sitting.keep(number, {OURS: {0.8: run(number / 10), 1.2: run(0.5)}}, {"busy_before": 0.0})
    assert sitting.missing(3) == []
    results = sitting.together(3)
    assert [item.on_time_share for item in results[OURS][0.8]] == [0.0, 0.9, 0.2]
    assert results[OURS][1.2][1] == first[OURS][1.2]
    assert [item["busy_before"] for item in sitting.conditions(3)] == [0.0, 0.1, 0.0]
    for other in ({**here, "commit": "abd"}, {**here, "rates": [0.8]}):
        assert Repeats(tmp_path, other).missing(3) == [0, 1, 2]


def test_truncated_repeat_is_measured_again(tmp_path: Path) -> None:
    repeats = Repeats(tmp_path, {"commit": "abc"})
    repeats.keep(0, {OURS: {1.0: run(0.9)}}, {})
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text()[:-20])
    assert repeats.missing(1) == [0]


def test_gpu_model_has_the_sizes_of_its_shape_and_the_tiny_models_tokenizer(tmp_path: Path) -> None:
    tiny = tmp_path / "tiny"
    (tiny / "adapter").mkdir(parents=True)
    (tiny / "config.json").write_text(json.dumps({"vocab_size": 2000, "hidden_size": 128, "model_type": "llama"}))
    for name in ("tokenizer.json", "model.safetensors"):
        (tiny / name).write_text("{}")
    made = shaped(tiny, SHAPES["8b"], tmp_path / "made")
    config = json.loads((made / "config.json").read_text())
    assert (config["vocab_size"], config["hidden_size"], config["num_key_value_heads"]) == (2000, 4096, 8)
    assert sorted(path.name for path in made.iterdir()) == ["config.json", "tokenizer.json"]
