from __future__ import annotations

from pathlib import Path

import pytest

from simulator.engine_models.engine_profile import (
    PROFILES,
    EngineProfile,
    UnreadableProfileError,
    profile_named,
    read_profile,
    write_profile,
)


def test_a_full_prompt_of_9585_tokens_costs_0_87_seconds() -> None:
    assert EngineProfile().prefill_s(9585, 0) == pytest.approx(0.87, abs=0.005)


def test_the_longest_prompt_of_the_study_costs_2_07_seconds() -> None:
    assert EngineProfile().prefill_s(20_480, 0) == pytest.approx(2.068, abs=0.001)


def test_a_cached_token_costs_two_microseconds_and_one_token_is_always_computed() -> None:
    assert EngineProfile().prefill_s(1024, 1024) == pytest.approx(0.010 + 0.08e-3 + 2e-9 * 1023.5 + 2e-6 * 1024)


def test_step_time_grows_with_batch_and_context() -> None:
    assert EngineProfile().step_s(10, 100_000) == pytest.approx(0.015 + 0.001 + 0.003)


def test_the_reference_counts_a_complete_hit_as_a_hit() -> None:
    assert EngineProfile().hit_tokens(1024, 2) == 1024
    assert EngineProfile().hit_tokens(1000, 2) == 1000


@pytest.mark.parametrize(("prompt", "hit"), [(1024, 512), (1025, 1024), (512, 0), (100, 0)])
def test_a_server_recomputes_the_last_block(prompt: int, hit: int) -> None:
    assert EngineProfile(recompute_last_block=True).hit_tokens(prompt, prompt // 512) == hit


def test_a_profile_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "fast.json"
    path.write_text('{"prefill_base_s": 0.002, "num_blocks": 10}')
    assert read_profile(path) == EngineProfile(prefill_base_s=0.002, num_blocks=10)


@pytest.mark.parametrize("text", ["{", '{"num_blocks": 0}', '{"blocks": 3}', "[" * 5000])
def test_an_invalid_profile_is_rejected_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(UnreadableProfileError, match=r"wrong\.json"):
        read_profile(path)


def test_a_missing_profile_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnreadableProfileError, match="cannot read"):
        read_profile(tmp_path / "none.json")


def test_all_faults_of_a_profile_are_reported_with_their_paths(tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_text('{"num_blocks": 0, "step_base_s": "fast", "blocks": 3, "source": "fine"}')
    with pytest.raises(UnreadableProfileError) as caught:
        read_profile(path)
    said = str(caught.value)
    assert all(f"at `$.{name}`" in said for name in ("num_blocks", "step_base_s", "blocks"))
    assert "$.source" not in said


def test_a_profile_round_trips(tmp_path: Path) -> None:
    profile = EngineProfile(prefill_base_s=0.5, source="a test")
    write_profile(tmp_path / "own.json", profile)
    assert read_profile(tmp_path / "own.json") == profile


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.json")), ids=lambda path: path.stem)
def test_every_bundled_profile_names_its_source(path: Path) -> None:
    assert len(profile_named(path.stem).source) > 40


def test_an_unknown_profile_lists_the_known_ones() -> None:
    with pytest.raises(UnreadableProfileError, match=r"known profiles: .*reference"):
        profile_named("../reference")


def test_the_reference_profile_has_the_figures_of_the_study() -> None:
    named = profile_named("reference")
    assert named.prefill_s(9585, 0) == EngineProfile().prefill_s(9585, 0)
    assert (named.num_blocks, named.block_tokens, named.device_tokens) == (1953, 512, 300_000)


def test_a_mixed_step_pays_only_the_larger_base_cost() -> None:
    profile = EngineProfile()
    assert profile.mixed_step_s(10, 5000, []) == pytest.approx(profile.step_s(10, 5000))
    assert profile.mixed_step_s(0, 0, [(1000, 1000)]) == pytest.approx(profile.prefill_s(1000, 0))
    mixed = profile.mixed_step_s(10, 5000, [(500, 500), (500, 3000)])
    chunks = 0.08e-3 * 1000 + 2e-9 * 500 * 250 + 2e-9 * 500 * 2750
    assert mixed == pytest.approx(0.015 + 0.001 + 30e-9 * 5000 + chunks)
