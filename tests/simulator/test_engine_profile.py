from __future__ import annotations

from pathlib import Path

import pytest

from simulator.engine_profile import EngineProfile, UnreadableProfileError, read_profile


def test_a_full_prompt_of_9585_tokens_costs_0_87_seconds() -> None:
    assert EngineProfile().prefill_s(9585, 0) == pytest.approx(0.87, abs=0.005)


def test_the_longest_prompt_of_the_study_costs_2_07_seconds() -> None:
    assert EngineProfile().prefill_s(20_480, 0) == pytest.approx(2.068, abs=0.001)


def test_a_hit_costs_two_microseconds_per_token_and_one_token_is_always_computed() -> None:
    assert EngineProfile().prefill_s(1024, 1024) == pytest.approx(0.010 + 0.08e-3 + 2e-9 * 1023.5 + 2e-6 * 1024)


def test_a_step_grows_with_batch_and_context() -> None:
    assert EngineProfile().step_s(10, 100_000) == pytest.approx(0.015 + 0.001 + 0.003)


def test_the_reference_takes_a_whole_hit_as_a_hit() -> None:
    assert EngineProfile().hit_tokens(1024, 2) == 1024
    assert EngineProfile().hit_tokens(1000, 2) == 1000


@pytest.mark.parametrize(("prompt", "hit"), [(1024, 512), (1025, 1024), (512, 0), (100, 0)])
def test_a_server_computes_the_last_block_again(prompt: int, hit: int) -> None:
    assert EngineProfile(recompute_last_block=True).hit_tokens(prompt, prompt // 512) == hit


def test_a_profile_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "fast.json"
    path.write_text('{"prefill_base_s": 0.002, "num_blocks": 10}')
    assert read_profile(path) == EngineProfile(prefill_base_s=0.002, num_blocks=10)


@pytest.mark.parametrize("text", ["{", '{"num_blocks": 0}', '{"blocks": 3}', "[" * 5000])
def test_a_wrong_profile_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(UnreadableProfileError, match=r"wrong\.json"):
        read_profile(path)


def test_a_missing_profile_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UnreadableProfileError, match="cannot read"):
        read_profile(tmp_path / "none.json")
