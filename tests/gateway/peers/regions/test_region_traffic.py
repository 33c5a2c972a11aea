"""Figures of one gateway's hand-overs: reasons, late and failed ones, and the last hour."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gateway.peers.regions.region_traffic import RegionTraffic
from routing.values.hop import Hop

HOP = Hop("us", "eu", "no_local_room", "")


class Scene:
    """A gateway of region us at a settable time. Mutable: the time."""

    def __init__(self) -> None:
        self.now = 10_000.0
        epochs = SimpleNamespace(known={}, serves=lambda region: region == "us", adopted=())
        peers: Any = SimpleNamespace(
            region="us", links=SimpleNamespace(me=SimpleNamespace(tag="us-1")), gateways={}, epochs=epochs
        )
        self.traffic = RegionTraffic(peers, lambda: self.now)

    def request(self, outcome: str, ttft_s: float | None = None, late: bool = False) -> None:
        record: Any = SimpleNamespace(outcome=outcome, ttft_s=ttft_s, misses_objective=lambda: late)
        self.traffic.forwarded(HOP)
        self.traffic.forward_ended(record, HOP)


def test_hand_overs_of_the_last_hour_are_counted_by_outcome() -> None:
    scene = Scene()
    scene.request("completed", 2.0)
    scene.request("completed", 4.0, late=True)
    scene.request("failed")
    scene.request("")
    scene.request("cancelled")
    (one,) = scene.traffic.sample().hand_overs
    assert (one.region, one.reason) == ("eu", "no_local_room")
    assert (one.requests, one.late, one.failed, one.first_tokens, one.ttft_s) == (5, 1, 2, 2, 6.0)
    scene.now += 1800
    scene.request("completed", 1.0)
    assert scene.traffic.sample().hand_overs[0].requests == 6
    scene.now += 1860
    assert scene.traffic.sample().hand_overs[0].requests == 1
    scene.now += 3600
    assert scene.traffic.sample().hand_overs == ()
