"""Each verdict follows the definition above its table for all numbers.

Balls into bins: more candidates fill engines more evenly, and equal settings give equal figures.
"""

from __future__ import annotations

from typing import Any

import pytest

from bench.evidence.chapters.capacity import admission, scale
from bench.evidence.chapters.routing import keys
from bench.evidence.measure.capacity import admission as measured
from bench.evidence.measure.capacity import kv_store
from bench.evidence.measure.routing import choices
from bench.evidence.store import Result
from bench.evidence.verdicts import dualmap, mooncake, mooncake_store
from bench.evidence.verdicts import verdict as terms


@pytest.mark.parametrize(("ours", "verdict"), [(0.2, "reproduced"), (0.9, "partly"), (1.4, "not reproduced")])
def test_latency_is_compared_with_the_best_baseline(monkeypatch: pytest.MonkeyPatch, ours: float, verdict: str) -> None:
    def point(_trace: str, _qps: float, placement: str, _order: str = "fifo") -> dict[str, Any]:
        value = {"dual_map": ours, "least_loaded": 9.0}.get(placement, 1.0)
        return {"ttft_p50_s": value}

    monkeypatch.setattr(dualmap, "point", point)
    assert dualmap.latency("ttft_p50_s")["verdict"] == verdict


@pytest.mark.parametrize(("ours", "verdict"), [(9.0, "reproduced"), (5.5, "partly"), (4.0, "not reproduced")])
def test_ahead_of_all_means_ahead_of_the_best_rival(monkeypatch: pytest.MonkeyPatch, ours: float, verdict: str) -> None:
    def goodput(size: int, rule: str) -> float:
        best = 5.0 if size == 8 else 6.0
        return ours if rule == "dual_map" else best if rule == "preble" else 1.0

    monkeypatch.setattr(scale, "goodput", goodput)
    monkeypatch.setattr(scale, "on_time", lambda *_: 0.9)
    assert dualmap.larger()["verdict"] == verdict


@pytest.mark.parametrize(
    ("early", "paper", "ours", "verdict"),
    [(80, 70, 200, "reproduced"), (80, 90, 10, "not reproduced"), (110, 70, 10, "not reproduced")],
)
def test_papers_prediction_is_judged_by_the_papers_rule(
    monkeypatch: pytest.MonkeyPatch, early: int, paper: int, ours: int, verdict: str
) -> None:
    rejected = {
        measured.AFTER_PREFILL: 100,
        measured.EARLY: early,
        measured.UNIFORM: paper,
        measured.SYSTEM: ours,
        measured.INSTANCE: ours,
    }
    monkeypatch.setattr(admission, "cell", lambda _load, _slo_s, mode: {"rejected": rejected[mode]})
    assert mooncake.rejections()["verdict"] == verdict


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
    ("hits", "verdict"),
    [
        ((0.27, 0.30, 0.46, 0.6), "reproduced"),
        ((0.27, 0.30, 0.45, 0.6), "partly"),
        ((0.491, 0.53, 0.54, 0.57), "partly"),
        ((0.491, 0.53, 0.495, 0.57), "not reproduced"),
    ],
)
def test_tiers_are_judged_by_the_gain_over_a_store_of_equal_size(
    monkeypatch: pytest.MonkeyPatch, hits: tuple[float, ...], verdict: str
) -> None:
    rows = [
        {"kind": "hints", "name": name, "hit_rate": hit} for name, hit in zip(kv_store.STRATEGIES, hits, strict=True)
    ]
    made = Result(name="kv_store", command="", settings={}, rows=rows)
    monkeypatch.setattr(mooncake_store, "load", lambda _name: made)
    assert mooncake_store.hints()["verdict"] == verdict


@pytest.mark.parametrize(
    ("long", "short", "verdict"),
    [
        ((80.0, 50.0, 25.0), (0.1, 0.1, 0.1), "reproduced"),
        ((80.0, 50.1, 25.0), (0.1, 0.1, 0.1), "partly"),
        ((80.0, 50.0, 25.0), (0.1, 0.1, 0.102), "partly"),
        ((80.0, 50.0, 50.0), (0.1, 0.1, 0.1), "not reproduced"),
    ],
)
def test_pipelined_prefill_is_judged_by_the_nodes(
    monkeypatch: pytest.MonkeyPatch, long: tuple[float, ...], short: tuple[float, ...], verdict: str
) -> None:
    rows = [
        {"kind": "pipeline", "number": float(stages), "long_s": seconds, "short_s": brief}
        for stages, seconds, brief in zip(kv_store.STAGES, long, short, strict=True)
    ]
    made = Result(name="kv_store", command="", settings={}, rows=rows)
    monkeypatch.setattr(mooncake_store, "load", lambda _name: made)
    assert mooncake_store.pipeline()["verdict"] == verdict


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
