"""A disk smaller than its tier: the node keeps serving, uses the available space, and reports it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from kvstore.node.block_store import BlockStore
from kvstore.node.disk_room import RETRY_MAX_S
from kvstore.node.node_manager import NodeManager
from kvstore.node.node_reporting import report_of
from kvstore.tiers.block_facts import SSD
from kvstore.tiers.free_slots import FreeSlots
from kvstore.tiers.slot_file import SlotFile
from tests.kvstore.kv_blocks import KEYRING, a_client, address, block, catalog_settings, key, node, payload
from tests.kvstore.transfer.test_transfer import contents, put
from tests.patience import wait_until

_WITHHELD = 'headway_kv_slots_withheld{medium="STORAGE"}'


class SmallDisk:
    """Space for a limited number of bytes of the file; further writes are rejected. Mutable: the space."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: SlotFile, slots: int) -> None:
        self.file, self.rejected = file, 0
        self.allow(slots)
        write = file._write

        def checked(data: bytes | memoryview, begin: int) -> None:
            if begin >= file._payloads_at and begin + len(data) > self._end:
                self.rejected += 1
                raise OSError(errno.ENOSPC, "No space left on device")
            write(data, begin)

        monkeypatch.setattr(file, "_write", checked)

    def allow(self, slots: int) -> None:
        self._end = self.file._payload_at(slots)


def a_store(directory: Path, **changes: Any) -> tuple[BlockStore, list[float]]:
    """Return a store with its clock, which tests advance."""
    now = [0.0]
    return BlockStore(catalog_settings(dram_slots=32, **changes), directory, lambda: now[0], 0.0, 1), now


def kept(store: BlockStore, name: object) -> bool:
    """Store a block with write-through; return whether the disk accepted it."""
    facts, data = block(name)
    store.allocate(f"t-{name}", [], [facts], 30.0)
    filling = store.begin_write(f"t-{name}", [facts.key])
    assert filling is not None
    filling[0].view[:] = data
    store.end_write(filling, [facts.checksum])
    assert store.commit(f"t-{name}")
    return store.write_through(facts.key)


def on_disk(store: BlockStore, *names: object) -> list[object]:
    records = {name: store.catalog.find(key(name)) for name in names}
    return [name for name, record in records.items() if record is not None and SSD in record.slots]


def test_after_one_rejected_write_new_blocks_replace_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = a_store(tmp_path, ssd_slots=16)
    assert store.slot_file is not None
    disk = SmallDisk(monkeypatch, store.slot_file, 5)
    assert [kept(store, number) for number in range(12)] == [True] * 5 + [False] + [True] * 6
    assert disk.rejected == 1
    assert on_disk(store, *range(12)) == [7, 8, 9, 10, 11]
    free = store.catalog.free_slots(SSD)
    assert (free.withheld, store.catalog.used_slots(SSD), store.counts.write_through_failed) == (11, 5, 1)
    store.catalog.check()
    store.close()


def test_a_disk_that_gains_space_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, now = a_store(tmp_path, ssd_slots=16)
    assert store.slot_file is not None
    disk, free = SmallDisk(monkeypatch, store.slot_file, 5), store.catalog.free_slots(SSD)
    for number in range(8):
        kept(store, number)
    tries = []
    for second in range(1, 64):
        now[0] = second - 0.5
        store.tick()
        if free.withheld == 10:
            tries.append(second)
            assert not kept(store, 100 + second)
        assert free.withheld == 11
    assert tries == [2, 4, 8, 16, 32], "one is tried, each time after a longer pause"
    disk.allow(16)
    now[0] += RETRY_MAX_S
    store.tick()
    assert [kept(store, number) for number in range(200, 211)] == [True] * 11
    assert (free.withheld, store.catalog.used_slots(SSD)) == (0, 16)
    store.catalog.check()
    store.close()


def test_other_disk_failures_disable_no_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = a_store(tmp_path)
    assert store.slot_file is not None

    def ill(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(store.slot_file, "_write", ill)
    assert not kept(store, "a")
    assert store.catalog.free_slots(SSD).withheld == 0
    store.close()


def test_a_node_reports_how_much_of_its_tier_is_unusable_and_keeps_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node(tmp_path, slots={"dram_slots": 4, "ssd_slots": 16}) as manager, a_client() as client:
        file = manager.store.slot_file
        assert file is not None
        SmallDisk(monkeypatch, file, 6)
        for number in range(20):
            put(client, manager, number)
            wait_until(lambda: not manager.write_through.waiting())
        wait_until(lambda: on_disk(manager.store, 19) == [19])
        assert contents(client, [address(manager)], [19, 18, 17]) == [bytes(payload(name)) for name in (19, 18, 17)]
        report = reported(manager)
        tier = next(item for item in report.tiers if item.medium == SSD)
        # Now and then one is retried.
        assert (tier.slots, tier.used_slots) == (16, 6)
        assert tier.withheld_slots in (9, 10)
        assert report.write_through_failed >= 1
        assert 0 < report.disk_busy <= 1
        lines = generate_latest(manager.metrics.registry).decode().splitlines()
        assert any(line in lines for line in (f"{_WITHHELD} 9.0", f"{_WITHHELD} 10.0"))
        assert "headway_kv_write_through_failed_total 0.0" not in lines
        assert any(line.startswith("headway_kv_disk_busy_share 0.") for line in lines)


def reported(manager: NodeManager) -> Any:
    return report_of(manager.store, manager.server, manager.write_through, KEYRING)


def test_a_written_slot_has_its_space_and_others_have_none(tmp_path: Path) -> None:
    store, _ = a_store(tmp_path, ssd_slots=4)
    assert kept(store, "a")
    record = store.catalog.find(key("a"))
    assert record is not None
    assert store.slot_file is not None
    slot = record.slots[SSD]
    written = bytes(number == slot for number in range(4))
    assert store.slot_file.written_slots() == written
    store.catalog.forget(record)
    store.settle()
    assert store.slot_file.written_slots() == written
    store.close()


def test_withheld_slots_are_unused_and_tenant_bytes_in_them_are_tracked() -> None:
    slots = FreeSlots(6)
    taken = {slots.take(), slots.take()}
    slots.give(0, "acme")
    taken.discard(0)
    slots.without_space({4, 5, 1})
    slots.check({item for item in taken if item is not None})
    assert (len(slots), slots.withheld) == (3, 2)
    assert slots.take_residue("acme") == [0]
    slots.give(0, None)
    slots.allow(1)
    assert (len(slots), slots.withheld) == (4, 1)
    assert [slots.take() for _ in range(5)] == [0, 2, 3, 4, None]
    assert slots.allow_next() == slots.take() == 5
    assert slots.allow_next() is None
