"""A key revoked over the bus stays revoked despite stale snapshots, restarts, and loss of the bus.

Revocations on disk are written whole or not at all, in space allocated in advance.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.access import revoked_keys
from gateway.access.key_revocation import LOST_TOPIC, MAX_BYTES, KeyRevocation, decode_revocation, encode_revocation
from gateway.access.revocation_file import FILE_NAME, SLOT_BYTES, SLOTS, RevocationFile
from gateway.bus.bus import InProcessBus
from gateway.bus.snapshot_store import SnapshotStore
from gateway.contracts.snapshot import ApiKeyEntry, Snapshot
from tests.gateway.live_gateway import LiveGateway, live_gateway, pool_entry
from tests.mounted_disk import small_disk
from tests.patience import until


def revocation(number: int = 0, **fields: Any) -> KeyRevocation:
    """Return the revocation of the key whose SHA-256 ends in this number."""
    known: dict[str, Any] = {
        "sha256": f"{number:064x}",
        "key_id": f"key-{number}",
        "at": 100.0,
        "by": "ann",
        "via": "api",
    }
    return KeyRevocation(**{**known, **fields})


REVOKED = revocation(1)
KEY = ApiKeyEntry(key_id="key-1", sha256=REVOKED.sha256, tenant_id="t")
OTHER = ApiKeyEntry(key_id="key-2", sha256="ab" * 32, tenant_id="t")


def published(version: int) -> Snapshot:
    """Return a snapshot of a database that does not contain the revocation yet."""
    return Snapshot(version=version, published_at=float(version), pools=(pool_entry(),), api_keys=(KEY, OTHER))


def say(bus: InProcessBus, said: KeyRevocation) -> None:
    bus.publish(said.topic, encode_revocation(said))


def opens(live: LiveGateway) -> list[bool]:
    """Return which of the two keys the gateway accepts, by text and by id."""
    gateway = live.gateway
    by_text = [gateway.api_key(key.sha256) is not None for key in (KEY, OTHER)]
    assert by_text == [gateway.key_with_id(key.key_id) is not None for key in (KEY, OTHER)]
    return by_text


async def test_a_revocation_disables_the_key_and_stale_snapshots_do_not_restore_it(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, published(1)) as live:
        assert opens(live) == [True, True]
        admitted = live.gateway.snapshot
        say(live.bus, REVOKED)
        await until(lambda: opens(live) == [False, True])
        assert live.gateway.snapshot is not admitted, "admissions under the old snapshot end"
        live.publish(published(2))
        await until(lambda: live.gateway.snapshot_version == 2)
        assert opens(live) == [False, True]


async def test_a_starting_gateway_reads_revocations_from_the_bus(tmp_path: Path) -> None:
    bus = InProcessBus()
    say(bus, REVOKED)
    async with live_gateway(tmp_path, published(1), bus=bus) as live:
        assert opens(live) == [False, True]


async def test_a_starting_gateway_reads_revocations_from_disk_and_republishes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revoked_keys, "REPORT_S", 0.02)
    async with live_gateway(tmp_path, published(1)) as live:
        say(live.bus, REVOKED)
        await until(lambda: RevocationFile(tmp_path).load() == [REVOKED])
    lost, bus = list[KeyRevocation](), InProcessBus()
    bus.subscribe(LOST_TOPIC, lambda _, value: lost.append(decode_revocation(value)))
    async with live_gateway(tmp_path, published(2), bus=bus) as live:
        assert opens(live) == [False, True]
        await until(lambda: len(lost) > 2)
        assert lost[0] == REVOKED
        say(bus, REVOKED)
        await asyncio.sleep(0.05)
        lost.clear()
        await asyncio.sleep(0.2)
        assert not lost, "the bus has it"


async def test_the_last_known_good_snapshot_omits_a_revoked_key(tmp_path: Path) -> None:
    SnapshotStore(tmp_path, 1e9).save(published(1), time.time())
    RevocationFile(tmp_path).save(REVOKED)
    async with live_gateway(tmp_path, None) as live:
        assert live.gateway.snapshot_version == 1
        assert opens(live) == [False, True]


async def test_snapshots_decide_again_once_the_database_holds_the_revocation(tmp_path: Path) -> None:
    stored = revocation(1, stored_as_of=5)
    async with live_gateway(tmp_path, published(4)) as live:
        say(live.bus, REVOKED)
        say(live.bus, stored)
        say(live.bus, REVOKED)
        await until(lambda: opens(live) == [False, True])
        await until(lambda: RevocationFile(tmp_path).load() == [stored])
        # From a database that was restored since then.
        live.publish(published(6))
        await until(lambda: opens(live) == [True, True])


async def test_malformed_revocations_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with live_gateway(tmp_path, published(1)) as live:
        live.bus.publish("revoked-keys/x", b"rubbish")
        for wrong in ({"sha256": "short"}, {"at": -1.0}, {"at": 1e300}, {"at": float("nan")}):
            live.bus.publish("revoked-keys/y", encode_revocation(revocation(1, **wrong)))
        say(live.bus, revocation(9))
        assert caplog.text.count("revocation_ignored") == 5
        assert opens(live) == [True, True]


async def test_a_failing_disk_delays_no_revocation_and_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(revoked_keys, "REPORT_S", 0.02)
    (tmp_path / FILE_NAME).mkdir()
    async with live_gateway(tmp_path, published(1)) as live:
        say(live.bus, REVOKED)
        await until(lambda: opens(live) == [False, True])
        await asyncio.sleep(0.1)
        assert caplog.text.count("revocations_not_saved") == 1
        (tmp_path / FILE_NAME).rmdir()
        await until(lambda: RevocationFile(tmp_path).load() == [REVOKED])


async def test_over_the_limit_revocations_not_yet_stored_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revoked_keys, "MAX_KNOWN", 10)
    async with live_gateway(tmp_path, published(1)) as live:
        say(live.bus, REVOKED)
        for number in range(100, 130):
            say(live.bus, revocation(number, stored_as_of=3))
        assert len(live.gateway._revoked._known) == 10
        await until(lambda: opens(live) == [False, True])


def test_a_saved_revocation_is_loaded_and_only_its_owner_can_read_the_file(tmp_path: Path) -> None:
    file = RevocationFile(tmp_path / "state")
    assert file.load() == []
    assert file.save(revocation(1))
    assert file.save(revocation(2, why="leaked ✓"))
    assert RevocationFile(tmp_path / "state").load() == [revocation(1), revocation(2, why="leaked ✓")]
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_the_largest_revocation_fits() -> None:
    largest = revocation(
        2**256 - 1, key_id="k" * 64, at=2e11, by="ä" * 150, via="v" * 16, why="漢" * 200, request_id="r" * 128,
        stored_as_of=2**63,
    )  # fmt: skip
    assert len(encode_revocation(largest)) <= MAX_BYTES


def test_a_key_has_one_slot(tmp_path: Path) -> None:
    file = RevocationFile(tmp_path)
    for version in (0, 7):
        file.save(revocation(1, stored_as_of=version))
    assert file.load() == [revocation(1, stored_as_of=7)]


def test_a_full_file_reports_it_and_stored_revocations_make_room(tmp_path: Path) -> None:
    file = RevocationFile(tmp_path)
    assert all(file.save(revocation(number)) for number in range(SLOTS))
    assert not file.save(revocation(SLOTS))
    file.save(revocation(3, stored_as_of=9))
    assert file.save(revocation(SLOTS))
    kept = {item.key_id for item in file.load()}
    assert kept == {f"key-{number}" for number in (*range(3), *range(4, SLOTS + 1))}
    assert file.path.stat().st_size == SLOTS * SLOT_BYTES


def test_space_is_allocated_at_startup(tmp_path: Path) -> None:
    file = RevocationFile(tmp_path)
    file.load()
    taken = file.path.stat().st_blocks
    assert taken * 512 >= SLOTS * SLOT_BYTES
    for number in range(SLOTS):
        file.save(revocation(number))
    assert file.path.stat().st_blocks == taken


def test_a_full_disk_still_accepts_revocations() -> None:
    with small_disk(mib=2) as disk:
        file = RevocationFile(disk.path)
        file.load()
        disk.fill()
        assert file.save(revocation(1))
        assert file.load() == [revocation(1)]


@pytest.mark.parametrize("cut", [0, 1, 19, 20, 21, 100])
def test_a_slot_interrupted_by_a_kill_is_free_and_others_remain(tmp_path: Path, cut: int) -> None:
    file = RevocationFile(tmp_path)
    for number in (1, 2):
        file.save(revocation(number))
    before = file.path.read_bytes()
    file.save(revocation(3))
    after = file.path.read_bytes()
    begin = 2 * SLOT_BYTES
    file.path.write_bytes(before[:begin] + after[begin : begin + cut] + before[begin + cut :])
    assert file.load() == [revocation(1), revocation(2)]
    assert file.save(revocation(4))
    assert file.load() == [revocation(1), revocation(2), revocation(4)]


def test_a_truncated_or_corrupt_file_is_empty(tmp_path: Path) -> None:
    for content in (b"", b"x" * 100, os.urandom(SLOTS * SLOT_BYTES)):
        (tmp_path / FILE_NAME).write_bytes(content)
        file = RevocationFile(tmp_path)
        assert file.load() == []
        assert file.save(revocation(1))
        assert file.load() == [revocation(1)]


def test_processes_that_share_a_directory_keep_each_others_revocations(tmp_path: Path) -> None:
    def save(first: int) -> None:
        file = RevocationFile(tmp_path)
        for number in range(first, first + 10):
            file.save(revocation(number))

    threads = [threading.Thread(target=save, args=(first,)) for first in range(0, 40, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    revocations: list[KeyRevocation] = RevocationFile(tmp_path).load()
    assert {item.key_id for item in revocations} == {f"key-{number}" for number in range(40)}
