"""Automation benchmarks generate the traffic that they describe."""

import pytest

from bench.evidence import modulo_map
from bench.evidence.measure.automation import elasticity, health, pd_ratio, rebalance
from planning.scaling.remap import remap_of
from routing.registry import PLACEMENTS as LIVE
from simulator.baselines.registry import PLACEMENTS
from simulator.workloads.trace import TraceRow


def rows(count: int) -> list[TraceRow]:
    return [TraceRow(3000.0 * (at // 3), 100, 1, (at,)) for at in range(count)]


def test_phases_follow_each_other_at_their_rates() -> None:
    made = elasticity.phased(rows(600), ((2.0, 100.0), (8.0, 50.0)))
    times = [item.timestamp / 1000 for item in made]
    assert times == sorted(times)
    assert sum(at < 100.0 for at in times) == pytest.approx(200, abs=3)
    assert (len(times), max(times)) == (600, 150.0)


def test_bursts_keep_the_mean_rate_and_raise_the_peak() -> None:
    times = [item.timestamp / 1000 for item in health.bursty("conversation_like", 1, 600.0)]
    assert times == sorted(times)
    in_burst = [at for at in times if at % health.PERIOD_S >= health.PERIOD_S - health.BURST_S]
    burst_qps = len(in_burst) / (times[-1] / health.PERIOD_S * health.BURST_S)
    assert burst_qps > 3 * health.QPS


def test_day_has_documents_at_noon_and_chats_at_midnight() -> None:
    made = pd_ratio.mixture(1, 400.0, lambda at: 2.0 * (at > 200), lambda at: 20.0 * (at <= 200))
    documents = [item.timestamp for item in made if item.input_length > 5000]
    assert documents
    assert min(documents) > 200_000
    assert max(item.timestamp for item in made if item.input_length < 1000) <= 200_000


def test_half_of_the_prompts_share_the_document_while_it_is_hot() -> None:
    made = rebalance.hot_prefix(1)
    hot = [item for item in made if item.hash_ids[0] == 1]
    during = [item for item in made if rebalance.HOT_FROM_S <= item.timestamp / 1000 < rebalance.HOT_TO_S]
    assert len(hot) / len(during) == pytest.approx(rebalance.HOT_SHARE, abs=0.03)
    assert len({item.hash_ids for item in made}) == len(made)


def test_modulo_gives_each_key_two_candidates_and_moves_most_keys_on_removal() -> None:
    eight, seven = (modulo_map.ModuloCandidates(size, 2) for size in (8, 7))
    assert all(len(set(eight.candidates(key))) == 2 for key in range(500))
    moved = sum(eight.candidates(key) != seven.candidates(key) for key in range(500)) / 500
    assert moved > 5 * remap_of([f"e-{at}" for at in range(8)], [f"e-{at}" for at in range(7)]).ideal


def test_modulo_is_not_a_placement_of_the_product() -> None:
    assert modulo_map.NAME not in PLACEMENTS | LIVE
