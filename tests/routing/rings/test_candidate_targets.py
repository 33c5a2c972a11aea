"""Candidate targets equal the candidates of the rings, however often they are requested."""

from routing.rings.hash_ring import MAX_KNOWN, CandidateRings, CandidateTargets

IDS = ("a", "b", "c", "d")
TARGETS = (5, 2, 70, 9)


def test_candidate_targets_equal_the_rings_candidates_and_their_bitset() -> None:
    rings = CandidateRings(IDS)
    candidates = CandidateTargets(rings, TARGETS)
    for key in [*range(50), *range(50)]:
        targets, among = candidates[key]
        assert targets == tuple(TARGETS[position] for position in rings.candidates(key))
        assert among == sum(1 << target for target in targets)


def test_remembered_keys_are_bounded() -> None:
    candidates = CandidateTargets(CandidateRings(IDS, virtual_nodes=1), TARGETS)
    first = candidates[0]
    for key in range(MAX_KNOWN + 1):
        assert candidates[key]
    assert len(candidates) <= MAX_KNOWN
    assert candidates[0] == first
