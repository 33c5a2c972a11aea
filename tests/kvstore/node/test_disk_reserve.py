"""The SSD tier shares its file system: it keeps a reserve free, and releases space when others need it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kvstore.node import command_line, disk_room
from kvstore.node.block_store import BlockStore
from kvstore.node.disk_space import WINDOW_S, DiskSpace, DiskUse, space_of, usual_reserve
from kvstore.node.node_manager import NodeSettings
from kvstore.node.node_reporting import report_of
from kvstore.tiers.block_facts import SSD
from kvstore.tiers.slot_file import SlotFile
from tests.kvstore.kv_blocks import KEYRING, SECRET, catalog_settings, key, node, payload
from tests.kvstore.node.test_small_disk import kept, on_disk

GIB = 1 << 30
STRIDE = 4096
"""Bytes of disk per slot of the tests."""


class SharedDisk:
    """A file system shared by the slot file and others. Mutable: the others' usage, in slots."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slots: int, others: int = 0) -> None:
        self.slots, self.others = slots, others
        monkeypatch.setattr(disk_room, "space_of", self.space)

    def space(self, where: Path | int) -> DiskSpace:
        assert isinstance(where, int)
        # The first page holds the headers.
        used = os.fstat(where).st_blocks * 512 - 2 * STRIDE
        return DiskSpace(
            total_bytes=self.slots * STRIDE, free_bytes=(self.slots - self.others) * STRIDE - used, disk_id="d"
        )

    def free(self, store: BlockStore) -> int:
        assert store.slot_file is not None
        return self.space(store.slot_file.fileno()).free_bytes // STRIDE


def a_store(directory: Path, reserve: int, **changes: Any) -> BlockStore:
    """Return a store that keeps the space of this many slots free."""
    settings = catalog_settings(dram_slots=32, slot_bytes=STRIDE, disk_reserve_bytes=reserve * STRIDE, **changes)
    return BlockStore(settings, directory, lambda: 0.0, 0.0, 1)


@pytest.mark.parametrize(
    ("size", "reserve"),
    [
        (0, 0),
        (1 * GIB, GIB // 5),
        (4 * GIB, 4 * GIB // 5),
        (10 * GIB, GIB),
        (100 * GIB, 5 * GIB),
        (1024 * GIB, 16 * GIB),
    ],
)
def test_a_reserve_must_fit_its_disk(size: int, reserve: int) -> None:
    assert usual_reserve(size) == reserve


def test_the_tier_stops_growing_at_the_reserve_and_new_blocks_replace_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SharedDisk(monkeypatch, slots=10)
    store = a_store(tmp_path, reserve=4, ssd_slots=16)
    for number in range(12):
        assert kept(store, number)
        store.tick()
    assert (disk.free(store), on_disk(store, *range(12))) == (4, [6, 7, 8, 9, 10, 11])
    assert store.catalog.free_slots(SSD).withheld == 10
    store.catalog.check()
    store.close()


def test_between_two_disk_readings_no_more_space_is_used_than_the_last_one_showed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SharedDisk(monkeypatch, slots=10)
    store = a_store(tmp_path, reserve=4, ssd_slots=16)
    kept(store, 0)
    store.tick()
    for number in range(1, 12):
        assert kept(store, number)
    assert disk.free(store) == 4
    store.close()


def test_the_tier_releases_space_when_others_fill_the_disk_and_regrows_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SharedDisk(monkeypatch, slots=20)
    store = a_store(tmp_path, reserve=4, ssd_slots=16)
    for number in range(16):
        kept(store, number)
    store.tick()
    assert (disk.free(store), len(on_disk(store, *range(16)))) == (4, 16)
    disk.others = 7
    store.tick()
    assert (disk.free(store), on_disk(store, *range(16))) == (4, list(range(7, 16))), "the oldest leave"
    assert store.catalog.free_slots(SSD).withheld == 7
    assert kept(store, "new")
    store.tick()
    assert (disk.free(store), on_disk(store, 7, "new")) == (4, ["new"])
    disk.others = 0
    store.tick()
    assert store.catalog.free_slots(SSD).withheld == 0
    for number in range(100, 116):
        kept(store, number)
    store.tick()
    assert (disk.free(store), on_disk(store, *range(100, 116))) == (4, list(range(100, 116)))
    store.catalog.check()
    store.close()


def test_free_slots_release_their_space_before_a_block_is_evicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SharedDisk(monkeypatch, slots=20)
    store = a_store(tmp_path, reserve=4, ssd_slots=16)
    for number in range(16):
        kept(store, number)
    for number in range(10, 14):
        record = store.catalog.find(key(number))
        assert record is not None
        store.catalog.forget(record)
    store.settle()
    disk.others = 4
    store.tick()
    assert (disk.free(store), len(on_disk(store, *range(16)))) == (4, 12)
    store.close()


def test_pinned_blocks_stay_however_full_the_disk_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SharedDisk(monkeypatch, slots=20)
    store = a_store(tmp_path, reserve=4, ssd_slots=16)
    for number in range(16):
        kept(store, number)
    assert store.pin([key(number) for number in range(3)], 60.0) == 3
    disk.others = 100
    store.tick()
    assert on_disk(store, *range(16)) == [0, 1, 2]
    store.catalog.check()
    store.close()


def test_one_tick_releases_a_bounded_amount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_room, "GIVEN_BACK_BYTES", 5 * STRIDE)
    disk = SharedDisk(monkeypatch, slots=20)
    store = a_store(tmp_path, reserve=4, ssd_slots=16)
    for number in range(16):
        kept(store, number)
    disk.others = 12
    left = []
    for _ in range(4):
        store.tick()
        left.append(len(on_disk(store, *range(16))))
    assert left == [11, 6, 4, 4]
    store.close()


def test_a_slot_that_released_its_space_holds_no_tenant_bytes_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SharedDisk(monkeypatch, slots=20)
    store = a_store(tmp_path, reserve=4, ssd_slots=16)
    for number in range(16):
        kept(store, number)
    disk.others = 16
    store.tick()
    store.close()
    assert not on_disk(store, *range(16))
    again = a_store(tmp_path, reserve=4, ssd_slots=16)
    assert len(again.catalog) == 0
    assert again.catalog.free_slots(SSD).withheld == 16
    file = (tmp_path / "blocks.kv").read_bytes()
    assert not any(bytes(payload(number)) in file for number in range(16))
    again.close()


def test_without_hole_punching_the_tier_keeps_working_and_its_bytes_are_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def cannot(_self: SlotFile, _slot: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(SlotFile, "punch", cannot)
    disk = SharedDisk(monkeypatch, slots=20)
    store = a_store(tmp_path, reserve=4, ssd_slots=16)
    for number in range(16):
        kept(store, number)
    disk.others = 4
    for _ in range(3):
        store.tick()
    assert caplog.text.count("cannot release disk space") == 1
    assert "a separate file system" in caplog.text
    assert disk.free(store) == 0
    assert all(kept(store, number) for number in range(100, 120))
    assert len(on_disk(store, *range(100, 120))) == 16
    store.catalog.check()
    store.close()


def test_an_unreadable_disk_usage_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SharedDisk(monkeypatch, slots=20)
    store = a_store(tmp_path, reserve=4, ssd_slots=16)

    def ill(_where: object) -> DiskSpace:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk_room, "space_of", ill)
    kept(store, 1)
    store.tick()
    assert on_disk(store, 1) == [1]
    store.close()


def test_a_real_file_system_regains_the_space_of_a_punched_slot(tmp_path: Path) -> None:
    file = SlotFile(tmp_path, 4, 1 << 20)
    store = BlockStore(catalog_settings(ssd_slots=4, slot_bytes=1 << 20), None, lambda: 0.0, 0.0, 1)
    file._write(b"x" * (4 << 20), file._payload_at(0))
    os.fsync(file.fileno())
    before = os.fstat(file.fileno()).st_blocks * 512
    file.punch(1)
    file.punch(2)
    freed = before - os.fstat(file.fileno()).st_blocks * 512
    # The file system's own blocks around the holes count, too.
    assert (2 << 20) - (64 << 10) <= freed <= 2 << 20
    assert file.written_slots() == b"\1\0\0\1"
    store.close()
    file.close()


def test_a_node_reports_its_disk_and_its_reserve(tmp_path: Path) -> None:
    with node(tmp_path, slots={"disk_reserve_bytes": None}) as manager:
        report = report_of(manager.store, manager.server, manager.write_through, KEYRING)
        space = space_of(tmp_path)
        assert (report.disk_bytes, report.disk_reserve_bytes) == (space.total_bytes, usual_reserve(space.total_bytes))
        assert report.disk_free_bytes > 0
        assert report.disk_id == space.disk_id != ""
        assert manager.metrics.registry.get_sample_value("headway_kv_disk_reserve_bytes") == report.disk_reserve_bytes
        metric = manager.metrics.registry.get_sample_value
        assert metric("headway_kv_disk_reserve_bytes") == report.disk_reserve_bytes
        assert metric("headway_kv_disk_free_bytes") == report.disk_free_bytes


@pytest.mark.parametrize(("option", "reserve"), [([], None), (["--disk-reserve-mib", "2048"], 2 << 30)])
def test_the_reserve_option_sets_the_reserve(
    option: list[str], reserve: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_KV_SECRET", SECRET.decode())
    started: list[NodeSettings] = []
    monkeypatch.setattr(command_line, "_serve", lambda settings: started.append(settings) or 0)
    assert command_line.main([*option, "--ssd-mib", "8", "--directory", str(tmp_path)]) == 0
    assert started[0].catalog.disk_reserve_bytes == reserve


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
