from __future__ import annotations

import random
import threading

import pytest

from kvstore.transfer.flow_control import FlowControl, FlowPriority, TransferQueue
from kvstore.transfer.quarantine import Quarantine
from kvstore.transfer.transfer_client import LinkRate
from kvstore.transfer.transfer_server import MAX_LINKS, ClientLinks
from tests.patience import wait_until


def test_urgent_transfers_go_first_and_equal_ones_in_order() -> None:
    queue = TransferQueue(100)
    replication = queue.join(FlowPriority.REPLICATION, 60)
    prefetch = queue.join(FlowPriority.PREFETCH, 60)
    first, second = queue.join(FlowPriority.REQUEST, 60), queue.join(FlowPriority.REQUEST, 60)
    for number in (first, second, prefetch, replication):
        others = {first, second, prefetch, replication} - {number}
        assert not any(queue.admit(other) for other in others)
        assert queue.admit(number)
        queue.end(60)


def test_bytes_in_flight_stay_within_the_window_unless_a_single_transfer_is_larger() -> None:
    queue = TransferQueue(100)
    small, large = queue.join(0, 60), queue.join(0, 500)
    assert queue.admit(small)
    assert not queue.admit(large)
    queue.end(60)
    assert queue.admit(large)


@pytest.mark.parametrize("seed", range(3))
def test_threads_respect_the_window_and_all_make_progress(seed: int) -> None:
    flow, rng = FlowControl(100), random.Random(seed)
    lock, under_way, most, done = threading.Lock(), [0], [0], [0]

    def move(priority: int, size: int) -> None:
        with flow.moving(priority, size, 20.0):
            with lock:
                under_way[0] += size
                most[0] = max(most[0], under_way[0])
            with lock:
                under_way[0] -= size
                done[0] += 1

    threads = [threading.Thread(target=move, args=(rng.randrange(3), rng.randrange(1, 80))) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done[0] == 60
    assert most[0] <= 100


def test_a_transfer_that_times_out_blocks_no_other() -> None:
    flow, entered = FlowControl(100), threading.Event()
    with flow.moving(0, 100, 1.0):
        with pytest.raises(TimeoutError, match="no turn for 80 bytes"), flow.moving(0, 80, 0.01):
            pytest.fail("there was no room")

        def later() -> None:
            with flow.moving(2, 10, 10.0):
                entered.set()

        thread = threading.Thread(target=later)
        thread.start()
    wait_until(entered.is_set)
    thread.join()


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


def test_bytes_are_counted_by_name_and_direction() -> None:
    links = ClientLinks()
    links.sent("a", 1000, 0.0)
    links.received("a", 7)
    links.received("b", 5)
    counted = {name: (link.sent_bytes, link.received_bytes) for name, link in links.links().items()}
    assert counted == {"a": (1000, 7), "b": (0, 5)}


@pytest.mark.parametrize("nonsense", [0.0, -5.0, float("nan"), float("inf")])
def test_the_rate_is_the_clients_last_plausible_report(nonsense: float) -> None:
    links = ClientLinks()
    for rate in (0.0, 7e6, 9e6, nonsense):
        links.sent("a", 1, rate)
    assert links.links()["a"].bytes_per_s == 9e6


def test_beyond_the_limit_the_first_client_is_forgotten() -> None:
    links = ClientLinks()
    for number in range(MAX_LINKS + 1):
        links.received(str(number), 1)
    assert len(links.links()) == MAX_LINKS
    assert "0" not in links.links()
