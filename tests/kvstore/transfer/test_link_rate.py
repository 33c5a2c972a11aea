import pytest

from kvstore.transfer.link_rate import LinkRate
from kvstore.transfer.quarantine import Quarantine


def test_the_cost_of_a_link_of_known_speed_is_learned() -> None:
    link = LinkRate()
    for _ in range(100):
        for size in (4 << 10, 1 << 20, 8 << 20):
            link.observe(size, 0.005 + size / 2e8)
    for size in (4 << 10, 1 << 20, 64 << 20):
        assert link.latency_s + size / link.bytes_per_s == pytest.approx(0.005 + size / 2e8, rel=0.05)
    assert (link.transfers, link.transferred_bytes) == (300, 100 * ((4 << 10) + (9 << 20)))


def test_a_transfer_without_duration_keeps_the_estimate_plausible() -> None:
    link = LinkRate()
    link.observe(1 << 20, 0.0)
    link.observe(0, -1.0)
    assert link.latency_s >= 0
    assert 0 < link.bytes_per_s < float("inf")


def test_a_peer_is_avoided_for_longer_after_each_failure_until_it_responds() -> None:
    peers = Quarantine()
    assert peers.usable("a", 0.0)
    waits = []
    for _ in range(10):
        peers.failed("a", 100.0)
        waits.append(next(wait for wait in (0.5, 1, 2, 4, 8, 16, 30) if peers.usable("a", 100.0 + wait)))
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30]
    assert peers.usable("b", 100.0)
    peers.succeeded("a")
    assert peers.usable("a", 100.0)
