from __future__ import annotations

import random
import threading

import pytest

from kvstore.transfer.flow_control import FlowControl, FlowPriority, TransferQueue
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
