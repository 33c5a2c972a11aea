from __future__ import annotations

import pytest

from kvstore.node.disk_use import WINDOW_S, DiskUse


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_disk_use_is_the_share_of_the_last_minute_with_reads_or_writes() -> None:
    clock = Clock()
    use = DiskUse(clock)
    assert use.share() == 0.0
    for _ in range(int(WINDOW_S)):
        with use.at_work():
            clock.now += 0.25
        clock.now += 0.75
        use.share()
    assert use.share() == pytest.approx(0.25)
    for _ in range(int(WINDOW_S) + 1):
        clock.now += 1.0
        use.share()
    assert use.share() == 0.0


def test_overlapping_operations_count_once_and_running_ones_count() -> None:
    clock = Clock()
    use = DiskUse(clock)
    with use.at_work():
        clock.now += 1.0
        with use.at_work():
            clock.now += 2.0
        clock.now += 1.0
        assert use.share() == pytest.approx(1.0)
    clock.now += 4.0
    assert use.share() == pytest.approx(0.5)


def test_a_failed_write_ends_its_time_too() -> None:
    clock = Clock()
    use = DiskUse(clock)
    with pytest.raises(OSError, match="full"), use.at_work():
        clock.now += 1.0
        raise OSError("full")
    clock.now += 3.0
    assert use.share() == pytest.approx(0.25)
