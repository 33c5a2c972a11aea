"""The last-known-good snapshot on disk is complete or ignored, private, and of limited age."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

from gateway.bus.snapshot_store import SnapshotStore
from gateway.contracts.snapshot import ApiKeyEntry, Snapshot

SNAPSHOT = Snapshot(version=3, published_at=10.0, api_keys=(ApiKeyEntry(key_id="k", sha256="00" * 32, tenant_id="t"),))


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "state", max_age_s=100.0)


def test_an_empty_store_loads_nothing(store: SnapshotStore) -> None:
    assert store.load(0.0) is None


def test_a_saved_snapshot_is_loaded(store: SnapshotStore) -> None:
    store.save(SNAPSHOT, 1000.0)
    store.save(SNAPSHOT, 1000.0)
    assert store.load(1050.0) == SNAPSHOT


def test_what_placements_learned_is_loaded_with_it(store: SnapshotStore) -> None:
    store.save(SNAPSHOT, 1000.0, {"pool": b"weights"})
    again = SnapshotStore(store.path.parent, max_age_s=100.0)
    assert again.load(1050.0) == SNAPSHOT
    assert again.learned == {"pool": b"weights"}


def test_only_its_owner_can_read_it_and_no_temporary_file_remains(store: SnapshotStore) -> None:
    store.save(SNAPSHOT, 1000.0)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert list(store.path.parent.iterdir()) == [store.path]


def test_a_new_snapshot_is_synced_before_it_replaces_the_old_one(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        steps.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().suffix or 'directory'}")
        sync(descriptor)

    def replaced(path: Path, target: Path) -> Path:
        steps.append("replace")
        return replace(path, target)

    monkeypatch.setattr("gateway.bus.snapshot_store.os.fsync", synced)
    monkeypatch.setattr("gateway.bus.snapshot_store.Path.replace", replaced)
    store.save(SNAPSHOT, 1000.0)
    assert steps == ["sync .tmp", "replace", "sync directory"]


def test_an_expired_snapshot_is_ignored_and_logged(store: SnapshotStore, caplog: pytest.LogCaptureFixture) -> None:
    store.save(SNAPSHOT, 1000.0)
    with caplog.at_level(logging.ERROR, logger="gateway"):
        assert store.load(1101.0) is None
    assert "last confirmed 101 s ago" in caplog.text


@pytest.mark.parametrize("keep", [0, 1, 10, -1])
def test_a_truncated_file_is_ignored_and_logged(
    store: SnapshotStore, keep: int, caplog: pytest.LogCaptureFixture
) -> None:
    store.save(SNAPSHOT, 1000.0)
    store.path.write_bytes(store.path.read_bytes()[:keep])
    with caplog.at_level(logging.ERROR, logger="gateway"):
        assert store.load(1000.0) is None
    assert "last_known_good_ignored" in caplog.text


def test_every_flipped_bit_is_detected(store: SnapshotStore) -> None:
    store.save(SNAPSHOT, 1000.0)
    good = store.path.read_bytes()
    for position in range(len(good)):
        store.path.write_bytes(good[:position] + bytes([good[position] ^ 4]) + good[position + 1 :])
        loaded = store.load(1000.0)
        assert loaded is None or loaded == SNAPSHOT


def test_a_file_of_a_newer_version_is_ignored(store: SnapshotStore) -> None:
    store.save(Snapshot(schema_version=99, version=1, published_at=0.0), 1000.0)
    assert store.load(1000.0) is None


def test_a_directory_at_its_path_is_ignored(store: SnapshotStore) -> None:
    store.path.mkdir(parents=True)
    assert store.load(0.0) is None
