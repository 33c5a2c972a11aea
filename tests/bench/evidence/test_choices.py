"""Balls into bins: more candidates fill engines more evenly, and equal settings give equal figures."""

from __future__ import annotations

import pytest

from bench.evidence.measure.routing import choices


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
