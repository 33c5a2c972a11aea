from collections.abc import Callable
from random import Random

import pytest

from simulator.link import Link, OverbookedLinkError, QueuedLink, Transfer
from simulator.virtual_clock import VirtualClock

GB = 1e9


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def link(clock: VirtualClock) -> QueuedLink:
    return QueuedLink(4 * GB, clock)


def landing(clock: VirtualClock, ends: list[tuple[str, float]], name: str) -> Callable[[Transfer], None]:
    def landed(transfer: Transfer) -> None:
        if transfer.done:
            ends.append((name, clock.now))

    return landed


def test_transfers_run_one_after_another_and_an_idle_link_saves_no_capacity() -> None:
    link = Link(100.0, latency_s=0.5)
    assert (link.carry(200, 1.0), link.carry(100, 1.0), link.carry(100, 9.0)) == (3.5, 4.5, 10.5)


def test_random_transfers_never_exceed_the_bandwidth() -> None:
    random, link, now = Random(1), Link(1000.0), 0.0
    for _ in range(500):
        now += random.random()
        ends_s = link.carry(random.randrange(2000), now)
        assert ends_s >= now
        assert link.carried_bytes <= 1000.0 * link.free_at + 1e-3


def test_exceeding_the_bandwidth_is_an_error() -> None:
    link = Link(100.0)
    link.carry(100, 0.0)
    link.free_at = 0.5
    with pytest.raises(OverbookedLinkError):
        link.check()


def test_a_transfer_takes_its_bytes_divided_by_the_bandwidth(clock: VirtualClock, link: QueuedLink) -> None:
    ends: list[tuple[str, float]] = []
    Transfer([link], 2 * GB, landing(clock, ends, "a"), urgent=True).start()
    clock.run(10.0)
    assert [name for name, _ in ends] == ["a"]
    assert ends[0][1] == pytest.approx(0.5)
    assert link.carried_bytes == pytest.approx(2 * GB)
    assert link.booked == pytest.approx([0.0, 0.0])


def test_requests_overtake_earlier_prefetches(clock: VirtualClock, link: QueuedLink) -> None:
    ends: list[tuple[str, float]] = []
    Transfer([link], 4 * GB, landing(clock, ends, "prefetch"), urgent=False).start()
    Transfer([link], 2 * GB, landing(clock, ends, "request"), urgent=True).start()
    clock.run(10.0)
    assert [name for name, _ in ends] == ["request", "prefetch"]
    assert ends[0][1] <= 0.5 + 4 / 16 / 4 + 1e-9
    assert ends[1][1] == pytest.approx(1.5)


def test_a_prefetch_whose_request_has_arrived_is_promoted(clock: VirtualClock, link: QueuedLink) -> None:
    ends: list[tuple[str, float]] = []
    Transfer([link], 4 * GB, landing(clock, ends, "first"), urgent=False).start()
    second = Transfer([link], 1 * GB, landing(clock, ends, "second"), urgent=False).start()
    clock.at(0.1, second.promote)
    clock.run(10.0)
    assert [name for name, _ in ends] == ["second", "first"]
    assert link.booked == pytest.approx([0.0, 0.0])


def test_stages_work_concurrently(clock: VirtualClock, link: QueuedLink) -> None:
    ends: list[tuple[str, float]] = []
    fast = QueuedLink(16 * GB, clock)
    Transfer([link, fast], 4 * GB, landing(clock, ends, "a"), urgent=True).start()
    clock.run(10.0)
    assert 1.0 < ends[0][1] <= 1.0 + 4 / 16 / 16 + 1e-9


def test_a_chained_transfer_carries_only_bytes_that_have_arrived(clock: VirtualClock, link: QueuedLink) -> None:
    ends: list[tuple[str, float]] = []
    fast = QueuedLink(16 * GB, clock)
    fill = Transfer([link], 4 * GB, landing(clock, ends, "fill"), urgent=False).start()
    load = Transfer([fast], 8 * GB, landing(clock, ends, "load"), urgent=False, after=fill, ready_share=0.5).start()
    clock.run(0.5)
    assert not load.all_released
    assert load.landed < load.chunks
    clock.run(10.0)
    assert [name for name, _ in ends] == ["fill", "load"]
    assert ends[1][1] == pytest.approx(1.0 + 0.5 / 16, abs=1e-6)


def test_a_cancelled_transfer_delivers_nothing_and_frees_the_link(clock: VirtualClock, link: QueuedLink) -> None:
    ends: list[tuple[str, float]] = []
    transfer = Transfer([link], 4 * GB, landing(clock, ends, "a"), urgent=False).start()
    clock.at(0.1, transfer.cancel)
    clock.run(10.0)
    assert not ends
    assert link.carried_bytes <= 0.1 * 4 * GB + transfer.chunk_bytes
    assert link.booked == pytest.approx([0.0, 0.0])
