import pytest

from simulator.sessions.links import OverbookedSessionLinkError, SessionLink, SessionTransfer
from simulator.virtual_clock import VirtualClock

GB = 1e9


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def link(clock: VirtualClock) -> SessionLink:
    return SessionLink("disk", 4 * GB, clock)


def landing(clock: VirtualClock, ends: list[tuple[str, float]], name: str):
    def landed(transfer: SessionTransfer) -> None:
        if transfer.done:
            ends.append((name, clock.now))

    return landed


def test_a_transfer_takes_its_bytes_divided_by_the_bandwidth(clock: VirtualClock, link: SessionLink) -> None:
    ends: list[tuple[str, float]] = []
    SessionTransfer([link], 2 * GB, landing(clock, ends, "a"), urgent=True).start()
    clock.run(10.0)
    assert ends == [("a", pytest.approx(0.5))]
    assert link.carried_bytes == pytest.approx(2 * GB)
    assert link.booked == pytest.approx([0.0, 0.0])


def test_requests_overtake_earlier_prefetches(clock: VirtualClock, link: SessionLink) -> None:
    ends: list[tuple[str, float]] = []
    SessionTransfer([link], 4 * GB, landing(clock, ends, "prefetch"), urgent=False).start()
    SessionTransfer([link], 2 * GB, landing(clock, ends, "request"), urgent=True).start()
    clock.run(10.0)
    assert [name for name, _ in ends] == ["request", "prefetch"]
    assert ends[0][1] <= 0.5 + 4 / 16 / 4 + 1e-9
    assert ends[1][1] == pytest.approx(1.5)


def test_a_prefetch_whose_request_has_arrived_is_promoted(clock: VirtualClock, link: SessionLink) -> None:
    ends: list[tuple[str, float]] = []
    SessionTransfer([link], 4 * GB, landing(clock, ends, "first"), urgent=False).start()
    second = SessionTransfer([link], 1 * GB, landing(clock, ends, "second"), urgent=False).start()
    clock.at(0.1, second.promote)
    clock.run(10.0)
    assert [name for name, _ in ends] == ["second", "first"]
    assert link.booked == pytest.approx([0.0, 0.0])


def test_stages_work_concurrently(clock: VirtualClock, link: SessionLink) -> None:
    ends: list[tuple[str, float]] = []
    fast = SessionLink("PCIe", 16 * GB, clock)
    SessionTransfer([link, fast], 4 * GB, landing(clock, ends, "a"), urgent=True).start()
    clock.run(10.0)
    assert 1.0 < ends[0][1] <= 1.0 + 4 / 16 / 16 + 1e-9


def test_a_chained_transfer_carries_only_bytes_that_have_arrived(clock: VirtualClock, link: SessionLink) -> None:
    ends: list[tuple[str, float]] = []
    fast = SessionLink("PCIe", 16 * GB, clock)
    fill = SessionTransfer([link], 4 * GB, landing(clock, ends, "fill"), urgent=False).start()
    load = SessionTransfer(
        [fast], 8 * GB, landing(clock, ends, "load"), urgent=False, after=fill, ready_share=0.5
    ).start()
    clock.run(0.5)
    assert not load.all_released
    assert load.landed < load.chunks
    clock.run(10.0)
    assert [name for name, _ in ends] == ["fill", "load"]
    assert ends[1][1] == pytest.approx(1.0 + 0.5 / 16, abs=1e-6)


def test_a_cancelled_transfer_delivers_nothing_and_frees_the_link(clock: VirtualClock, link: SessionLink) -> None:
    ends: list[tuple[str, float]] = []
    transfer = SessionTransfer([link], 4 * GB, landing(clock, ends, "a"), urgent=False).start()
    clock.at(0.1, transfer.cancel)
    clock.run(10.0)
    assert not ends
    assert link.carried_bytes <= 0.1 * 4 * GB + transfer.chunk_bytes
    assert link.booked == pytest.approx([0.0, 0.0])


def test_the_wait_is_the_backlog_of_the_same_and_higher_classes(clock: VirtualClock, link: SessionLink) -> None:
    SessionTransfer([link], 4 * GB, lambda _: None, urgent=False).start()
    assert link.wait_s(urgent=True) == 0.0
    assert link.wait_s(urgent=False) == pytest.approx(1.0)


def test_a_link_that_exceeded_its_bandwidth_is_reported(clock: VirtualClock, link: SessionLink) -> None:
    clock.run(1.0)
    link.carried_bytes = 5 * GB
    with pytest.raises(OverbookedSessionLinkError):
        link.check()
