"""Revocations on disk are written whole or not at all, in space allocated in advance."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from gateway.access.key_revocation import MAX_BYTES, KeyRevocation, encode_revocation
from gateway.access.revocation_file import FILE_NAME, SLOT_BYTES, SLOTS, RevocationFile
from tests.gateway.access.revocations import revocation
from tests.mounted_disk import small_disk


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
