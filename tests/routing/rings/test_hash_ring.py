"""Candidate targets equal the candidates of the rings, however often they are requested."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.rings.affinity_key import affinity_key
from routing.rings.hash_ring import MAX_KNOWN, CandidateRings, CandidateTargets, HashRing
from tests.routing.pools import request

IDS = st.lists(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=12, unique=True)
KEYS = st.integers(0, 2**64 - 1)


@given(IDS, st.integers(1, 20))
def test_shares_fill_the_ring(ids: list[str], virtual_nodes: int) -> None:
    HashRing(ids, virtual_nodes=virtual_nodes).check()


@given(IDS, st.lists(KEYS, min_size=1, max_size=30))
def test_a_removed_engine_moves_only_its_own_keys(ids: list[str], keys: list[int]) -> None:
    whole, rest = HashRing(ids), HashRing(ids[1:]) if len(ids) > 1 else None
    for key in keys:
        owner = ids[whole.owner(key)]
        if rest is not None and owner != ids[0]:
            assert ids[1:][rest.owner(key)] == owner


@given(IDS, KEYS)
def test_two_candidates_differ_if_there_are_two_engines(ids: list[str], key: int) -> None:
    candidates = CandidateRings(ids).candidates(key)
    assert len(set(candidates)) == len(candidates) == min(2, len(ids))


@given(IDS, KEYS, st.integers(1, 8))
def test_more_rings_give_more_distinct_candidates(ids: list[str], key: int, rings: int) -> None:
    candidates = CandidateRings(ids, rings=rings).candidates(key)
    assert len(set(candidates)) == len(candidates) == min(rings, len(ids))
    assert candidates[0] == CandidateRings(ids).candidates(key)[0]


@given(IDS, KEYS)
def test_a_walk_of_the_ring_visits_every_engine_once_starting_with_the_owner(ids: list[str], key: int) -> None:
    ring = HashRing(ids)
    walk = list(ring.owners(key))
    assert walk[0] == ring.owner(key)
    assert sorted(walk) == list(range(len(ids)))


def test_when_both_rings_agree_the_second_candidate_is_the_next_engine() -> None:
    ring = CandidateRings(["a", "b", "c"], virtual_nodes=1)
    pairs = [ring.candidates(key) for key in range(500)]
    first, second = ring._rings
    same = [key for key in range(500) if first.owner(key) == second.owner(key)]
    assert same
    assert all(pairs[key][1] == (pairs[key][0] + 1) % 3 for key in same)


def test_a_hundred_virtual_nodes_give_each_engine_a_fair_share() -> None:
    shares = HashRing([f"e-{number:02}" for number in range(8)]).shares()
    assert min(shares) > 0.08
    assert max(shares) < 0.18


def test_a_ring_without_virtual_nodes_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least 1 virtual node"):
        HashRing(["a"], virtual_nodes=0)


def test_the_affinity_key_is_the_key_of_the_last_counted_block() -> None:
    asked = request(1, [7, 8, 9])
    assert affinity_key(asked, 2) == asked.keys[1]
    assert affinity_key(asked, 5) == asked.keys[2]


def test_finer_first_blocks_precede_the_larger_ones() -> None:
    asked = msgspec.structs.replace(request(1, [7, 8, 9]), head=(21, 22, 23, 24))
    assert [affinity_key(asked, blocks) for blocks in (1, 3, 9)] == [21, 23, 24]


def test_a_prompt_without_blocks_uses_its_id() -> None:
    assert affinity_key(request(1, []), 2) != affinity_key(request(2, []), 2)


TARGET_IDS = ("a", "b", "c", "d")
TARGETS = (5, 2, 70, 9)


def test_candidate_targets_equal_the_rings_candidates_and_their_bitset() -> None:
    rings = CandidateRings(TARGET_IDS)
    candidates = CandidateTargets(rings, TARGETS)
    for key in [*range(50), *range(50)]:
        targets, among = candidates[key]
        assert targets == tuple(TARGETS[position] for position in rings.candidates(key))
        assert among == sum(1 << target for target in targets)


def test_remembered_keys_are_bounded() -> None:
    candidates = CandidateTargets(CandidateRings(TARGET_IDS, virtual_nodes=1), TARGETS)
    first = candidates[0]
    for key in range(MAX_KNOWN + 1):
        assert candidates[key]
    assert len(candidates) <= MAX_KNOWN
    assert candidates[0] == first
