"""A ratio is near the paper's within a quarter of its effect, and settings taken from a paper give no verdict.

Balls into bins: more candidates fill engines more evenly, and equal settings give equal figures.
"""

from __future__ import annotations

import pytest

from bench.evidence.chapters.routing import keys
from bench.evidence.measure.capacity import kv_store
from bench.evidence.measure.routing import choices
from bench.evidence.verdicts import dualmap, mooncake
from bench.evidence.verdicts import verdict as terms


@pytest.mark.parametrize(
    ("ratio", "paper", "near"),
    [
        (1.07, (1.31, 1.9), False),
        (1.24, (1.31, 1.9), True),
        (2.12, (1.31, 1.9), True),
        (2.13, (1.31, 1.9), False),
        (0.67, (0.573,), True),
        (0.69, (0.573,), False),
        (0.741, (0.573,), False),
    ],
)
def test_near_is_a_quarter_of_the_effect(ratio: float, paper: tuple[float, ...], near: bool) -> None:
    assert terms.near(ratio, *paper) is near


@pytest.mark.parametrize(
    ("ratio", "paper", "reached"),
    [
        (1.94, 2.25, True),
        (1.93, 2.25, False),
        (9.0, 2.25, True),
        (0.89, 0.86, True),
        (0.9, 0.86, False),
        (1.1, 0.86, False),
    ],
)
def test_effect_is_reached_at_three_quarters_in_the_papers_direction(ratio: float, paper: float, reached: bool) -> None:
    assert terms.reaches(ratio, paper) is reached


def test_more_nodes_compute_a_long_prompt_faster() -> None:
    one, four = (kv_store.pipeline(kv_store.Asked(kind="pipeline", number=stages)) for stages in (1, 4))
    assert one["long_s"] > 3 * four["long_s"]


def test_setting_taken_from_the_paper_gives_no_verdict() -> None:
    assert [item()["verdict"] for item in (dualmap.key_lengths, mooncake.peak)] == ["by construction"] * 2
    assert keys.PAPER["13"] == 0.378


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "SEEDS", 2)
    monkeypatch.setattr(choices, "PER_ENGINE", 200)


def _deviation(bins: str, d: int) -> float:
    asked = choices.Throw(bins=bins, d=d, engines=8)  # type: ignore[arg-type]  # the table's values
    return float(str(choices.deviation(asked)["max_deviation"]))


@pytest.mark.parametrize("bins", choices.BINS)
def test_second_candidate_evens_the_load(bins: str) -> None:
    assert _deviation(bins, 2) < 0.5 * _deviation(bins, 1)


def test_one_ring_node_per_engine_is_less_even_than_many() -> None:
    assert _deviation("1 node", 1) > _deviation("100 nodes", 1) > _deviation("uniform", 1)


def test_same_setting_gives_the_same_figure() -> None:
    assert _deviation("100 nodes", 2) == _deviation("100 nodes", 2)
