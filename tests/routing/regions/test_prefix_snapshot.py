"""The prefix snapshot is bounded, sent in deltas, and correct whatever version a peer has."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from gateway.regions.region_peers import heartbeats
from routing.regions.heartbeat import Heartbeat
from routing.regions.prefix_snapshot import HeldPrefixes, PrefixDelta, PrefixSnapshot, kept_depths


@pytest.mark.parametrize("blocks", [1, 15, 16, 17, 33, 64, 65, 1000, 10_000])
def test_depths_are_equal_for_all_prompts_and_limit_the_match_error_to_an_eighth(blocks: int) -> None:
    depths = list(kept_depths(blocks))
    assert depths[0] == blocks
    assert depths[-1] == 1
    assert depths == sorted(set(depths), reverse=True)
    grid = set(kept_depths(1 << 20))
    assert set(depths[1:]) <= grid
    for deeper, depth in pairwise(depths):
        assert deeper - depth <= max(1, depth // 8)


def test_a_match_is_the_deepest_kept_prefix() -> None:
    snapshot, held = PrefixSnapshot(), HeldPrefixes()
    snapshot.note(range(100, 140))
    held.apply(snapshot.since(0))
    assert held.matched_blocks(range(100, 140)) == 40
    assert held.matched_blocks([*range(100, 120), 7, 8]) == 20
    assert held.matched_blocks([7, 8]) == 0
    assert held.matched_blocks([]) == 0


@pytest.mark.parametrize("seed", range(5))
def test_deltas_from_any_version_produce_the_same_keys(seed: int) -> None:
    rng = random.Random(seed)
    snapshot, peers = PrefixSnapshot(limit=40), [HeldPrefixes() for _ in range(3)]
    for _ in range(300):
        start = rng.randrange(1000)
        snapshot.note([start * 100 + depth for depth in range(rng.randrange(1, 30))])
        snapshot.check()
        late: list[tuple[HeldPrefixes, PrefixDelta]] = []
        for peer in peers:
            if rng.random() < 0.3:
                delta = snapshot.since(peer.version)
                # Answers may come twice, or behind a later one.
                late += [(peer, delta)] * rng.randrange(1, 3)
        rng.shuffle(late)
        for peer, delta in late:
            peer.apply(delta)
    whole = HeldPrefixes()
    whole.apply(snapshot.since(0))
    for peer in peers:
        peer.apply(snapshot.since(peer.version))
        assert peer.keys == whole.keys
    assert len(whole.keys) <= 40


def test_an_unknown_version_gets_the_whole_snapshot() -> None:
    snapshot = PrefixSnapshot()
    snapshot.note([1, 2, 3])
    assert snapshot.since(99).base == 0
    assert snapshot.since(0).base == 0


def test_forgotten_keys_are_removed_at_peers_of_any_version() -> None:
    snapshot = PrefixSnapshot()
    peers = [HeldPrefixes() for _ in range(3)]
    for number, peer in enumerate(peers):
        snapshot.note([number, 100 + number])
        peer.apply(snapshot.since(peer.version))
    snapshot.forget()
    snapshot.check()
    snapshot.note([7])
    for peer in peers:
        peer.apply(snapshot.since(peer.version))
        assert peer.keys == {7}


def test_a_whole_snapshot_fits_a_heartbeat() -> None:
    snapshot = PrefixSnapshot()
    rng = random.Random(1)
    for _ in range(400):
        snapshot.note([rng.getrandbits(64) for _ in range(20)])
    beat = Heartbeat("a" * 8, "us", 0.0, (), {}, {}, {"us": snapshot.since(0)})
    data = heartbeats.encode(beat)
    assert len(data) < 20_000
    assert heartbeats.decode(data) == beat
