"""Exact shares of engines on hash rings, and the keys that a removed engine moves."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.rings.hash_ring import RING, CandidateRings, HashRing
from routing.rings.ring_plan import OnRings, RingPlan, candidates_on
from routing.rings.ring_shares import UnknownEngineError, candidate_shares, ring_shares

IDS = st.lists(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=9, unique=True)
EIGHT = [f"e-{number}" for number in range(8)]
PAIRS = RingPlan(2, 40, independent=True)


@given(IDS, st.integers(1, 20))
def test_arcs_cover_the_ring_without_gap_or_overlap(ids: list[str], virtual_nodes: int) -> None:
    ring = HashRing(ids, virtual_nodes=virtual_nodes)
    arcs = ring.arcs()
    assert sum(length for _, length, _ in arcs) == RING == sum(ring.lengths())
    for (begin, length, _), (after, _, _) in pairwise(arcs):
        assert begin + length == after


@given(IDS, st.integers(1, 4))
def test_shares_sum_to_one_before_and_after_an_engine_is_removed(ids: list[str], rings: int) -> None:
    computed = ring_shares(RingPlan(rings, 10, independent=True), ids, without=ids[0])
    assert sum(engine.share for engine in computed.engines) == pytest.approx(1)
    if len(ids) > 1:
        gained = sum(engine.gain or 0.0 for engine in computed.engines)
        assert gained == pytest.approx(computed.moved)


def test_shares_agree_with_a_hundred_thousand_keys() -> None:
    rings, rng = CandidateRings(EIGHT, virtual_nodes=3), Random(5)
    counts = [0] * len(EIGHT)
    for _ in range(100_000):
        for at in rings.candidates(rng.getrandbits(64)):
            counts[at] += 1
    # Three points per engine: shares differ widely, and rings agree often.
    for share, count in zip(candidate_shares(rings.rings), counts, strict=True):
        assert share == pytest.approx(count / 200_000, abs=0.004)


def test_the_moved_share_equals_that_of_reassigned_keys() -> None:
    rng = Random(7)
    keys = [rng.getrandbits(64) for _ in range(40_000)]
    computed = ring_shares(PAIRS, EIGHT, without="e-3")
    before, after = CandidateRings(EIGHT, virtual_nodes=40), CandidateRings(EIGHT[:3] + EIGHT[4:], virtual_nodes=40)
    changed, gained = 0, dict.fromkeys(EIGHT, 0)
    for key in keys:
        old = {EIGHT[at] for at in before.candidates(key)}
        new = {(EIGHT[:3] + EIGHT[4:])[at] for at in after.candidates(key)}
        changed += old != new
        for engine_id in new - old:
            gained[engine_id] += 1
        for engine_id in old - new:
            gained[engine_id] -= 1
    assert computed.keys_changed == pytest.approx(changed / len(keys), abs=0.006)
    for engine in computed.engines:
        if engine.engine_id == "e-3":
            assert engine.gain is None
        else:
            assert engine.gain == pytest.approx(gained[engine.engine_id] / (2 * len(keys)), abs=0.004)
    # All other keys stay in place, so about an eighth moves and never half of all.
    assert computed.ideal == pytest.approx(1 / 8)
    assert computed.moved == pytest.approx(1 / 8, abs=0.05)


def test_traffic_is_counted_by_the_observed_keys() -> None:
    key = 4711
    rings = CandidateRings(EIGHT, virtual_nodes=40)
    first, second = (EIGHT[at] for at in rings.candidates(key))
    computed = ring_shares(PAIRS, EIGHT, [(key, 30)], without=first)
    shares = {engine.engine_id: engine.traffic for engine in computed.engines}
    assert (shares[first], shares[second], computed.requests) == (0.5, 0.5, 30)
    assert computed.traffic_moved == 0.5
    assert sum(engine.traffic_gain or 0 for engine in computed.engines) == pytest.approx(0.5)
    assert {engine.traffic for engine in ring_shares(PAIRS, EIGHT).engines} == {None}


@given(IDS, st.integers(0, 2**64 - 1), st.integers(1, 4))
def test_candidates_equal_those_of_the_placement(ids: list[str], key: int, rings: int) -> None:
    plan = RingPlan(rings, 10, independent=True)
    assert candidates_on(plan.over(ids), key) == CandidateRings(ids, rings=rings, virtual_nodes=10).candidates(key)


def test_a_plain_ring_and_a_single_engine_have_shares_too() -> None:
    plain = RingPlan(1, 100, independent=False)
    computed = ring_shares(plain, EIGHT, without="e-0")
    assert [engine.share for engine in computed.engines] == pytest.approx(HashRing(EIGHT).shares())
    alone = ring_shares(PAIRS, ["only"], without="only")
    assert (alone.engines[0].share, alone.moved) == (1.0, None)
    assert ring_shares(PAIRS, []).engines == ()


def test_an_engine_that_is_not_on_the_rings_is_rejected() -> None:
    with pytest.raises(UnknownEngineError, match="e-9"):
        ring_shares(PAIRS, EIGHT, without="e-9")


def test_placements_on_rings_return_their_ring_plan() -> None:
    from routing.registry import PLACEMENTS

    on_rings = {name for name, kind in PLACEMENTS.items() if isinstance(kind(), OnRings)}
    assert on_rings == {"dual_map", "consistent_hash"}
    dual_map = PLACEMENTS["dual_map"](d=3, virtual_nodes=7, adaptive_key=False)
    assert isinstance(dual_map, OnRings)
    assert dual_map.ring_plan() == RingPlan(3, 7, True, 2, False)
    assert [dual_map.key_length(range(length)) for length in (1, 2, 9)] == [1, 2, 2]
