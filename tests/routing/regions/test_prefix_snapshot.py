"""The prefix snapshot is bounded, sent in deltas, and correct whatever version a peer has.

Facts about a peer are dated by the heartbeat call, expire after two seconds, and are rebuilt after a restart.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from gateway.peers.regions.region_peers import heartbeats
from routing.regions.heartbeat import Heartbeat
from routing.regions.peer_gateway import SENT_KEYS, SILENCE_S, PeerGateway
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


def heartbeat(tag: str = "aaaaaaaa", at: float = 0.0, keys: tuple[int, ...] = (), version: int = 1) -> Heartbeat:
    return Heartbeat(tag, "eu", at, (), {}, {}, {"eu": PrefixDelta(0, version, keys)})


def test_facts_are_as_old_as_the_call_that_returned_them() -> None:
    peer = PeerGateway("eu=1", "eu", "127.0.0.1:1")
    assert not peer.is_fresh(0.0)
    peer.receive(heartbeat(), asked_s=10.0, now=11.5, wall=0.0)
    assert peer.is_fresh(10.0 + SILENCE_S)
    assert not peer.is_fresh(10.0 + SILENCE_S + 0.001), "the answer came late, and is not younger for that"


def test_a_response_delayed_by_a_stalled_link_changes_nothing() -> None:
    peer = PeerGateway("eu=1", "eu", "127.0.0.1:1")
    peer.receive(heartbeat(at=5.0), asked_s=20.0, now=20.1, wall=0.0)
    peer.receive(heartbeat(at=4.0), asked_s=19.0, now=30.0, wall=0.0)
    assert peer.heartbeat is not None
    assert peer.heartbeat.at == 5.0
    assert not peer.is_fresh(30.0)


def test_round_trip_and_clock_offset_are_measured() -> None:
    peer = PeerGateway("eu=1", "eu", "127.0.0.1:1")
    peer.receive(heartbeat(at=1000.3), asked_s=1.0, now=1.2, wall=1000.2)
    assert peer.one_way_s == pytest.approx(0.1)
    assert peer.clock_offset_s == pytest.approx(0.2), "its clock showed 1000.3 when ours showed 1000.1"


def test_forwards_count_until_a_later_call_reports_them() -> None:
    peer = PeerGateway("eu=1", "eu", "127.0.0.1:1")
    peer.forwarded("eu", (), 1.0)
    peer.forwarded("eu", (), 2.0)
    peer.receive(heartbeat(), asked_s=1.5, now=1.6, wall=0.0)
    assert peer.untold("eu") == 1
    assert peer.untold("asia") == 0


def test_a_region_holds_the_prompts_that_we_forwarded_until_its_gateway_restarts() -> None:
    peer = PeerGateway("eu=1", "eu", "127.0.0.1:1")
    peer.receive(heartbeat(keys=(1,)), asked_s=1.0, now=1.0, wall=0.0)
    peer.forwarded("eu", (1, 2, 3), 1.5)
    assert peer.matched_blocks("eu", (1, 2, 3, 4)) == 3
    assert peer.matched_blocks("eu", (1, 9)) == 1
    assert peer.matched_blocks("asia", (1, 2, 3)) == 0
    peer.receive(heartbeat(keys=(1, 2), version=2), asked_s=2.0, now=2.0, wall=0.0)
    assert peer.matched_blocks("eu", (1, 2, 3)) == 3, "a bounded snapshot without a prompt proves nothing"
    peer.receive(heartbeat("bbbbbbbb", keys=(1,)), asked_s=3.0, now=3.0, wall=0.0)
    assert peer.matched_blocks("eu", (1, 2, 3)) == 1


def test_only_the_latest_forwarded_prompts_are_remembered() -> None:
    peer = PeerGateway("eu=1", "eu", "127.0.0.1:1")
    for key in range(SENT_KEYS + 1):
        peer.forwarded("eu", (key,), 0.0)
    assert [peer.matched_blocks("eu", (key,)) for key in (0, 1, SENT_KEYS)] == [0, 1, 1]


def test_a_restarted_peer_holds_only_what_it_reports_after_the_restart() -> None:
    peer = PeerGateway("eu=1", "eu", "127.0.0.1:1")
    peer.receive(heartbeat(keys=(1, 2), version=50), asked_s=1.0, now=1.0, wall=0.0)
    peer.receive(heartbeat("bbbbbbbb", keys=(3,), version=2), asked_s=2.0, now=2.0, wall=0.0)
    assert peer.held["eu"].keys == {3}


def test_prefixes_of_a_taken_over_region_count_for_it_while_the_peer_serves_it() -> None:
    peer = PeerGateway("us=1", "us", "127.0.0.1:1")
    both = {"us": PrefixDelta(0, 2, (1,)), "eu": PrefixDelta(0, 2, (9,))}
    peer.receive(Heartbeat("aaaaaaaa", "us", 0.0, (), {}, {}, both), asked_s=1.0, now=1.0, wall=0.0)
    assert peer.question({}).prefixes == {"us": 2, "eu": 2}
    assert [peer.matched_blocks(region, (9,)) for region in ("us", "eu", "asia")] == [0, 1, 0]
    handed_back = {"us": PrefixDelta(2, 2)}
    peer.receive(Heartbeat("aaaaaaaa", "us", 0.0, (), {}, {}, handed_back), asked_s=2.0, now=2.0, wall=0.0)
    assert [peer.matched_blocks(region, (1,)) for region in ("us", "eu")] == [1, 0]
    assert peer.question({}).prefixes == {"us": 2}
