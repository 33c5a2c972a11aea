"""`manage.py revoke_key`: how a key is selected, and the output."""

from __future__ import annotations

import io
from importlib import import_module
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import override_settings

from controlplane.platform.bus import get_bus
from controlplane.platform.models.api_key import hash_api_key
from controlplane.platform.snapshot_change import TOPIC
from gateway.access.key_revocation import TOPIC_PREFIX, KeyRevocation, decode_revocation
from gateway.bus.bus import Bus, InProcessBus
from gateway.bus.snapshot_store import SnapshotStore
from gateway.contracts.snapshot import ApiKeyEntry, Snapshot, encode_snapshot

MODULE = import_module("controlplane.management.commands.revoke_key")
TEXT = "hw_abcdefghIJKLmnopQRSTuvwxYZ0123456789abcdefg"
KEYS = (
    ApiKeyEntry(key_id="key-1", sha256=hash_api_key(TEXT), prefix="hw_abcdefgh", tenant_id="acme"),
    ApiKeyEntry(key_id="key-2", sha256="a" * 64, prefix="hw_twice000", tenant_id="acme"),
    ApiKeyEntry(key_id="key-3", sha256="b" * 64, prefix="hw_twice000", tenant_id="acme"),
    ApiKeyEntry(key_id="key-4", sha256="c" * 64, tenant_id="older release"),
)
SNAPSHOT = Snapshot(version=1, published_at=0.0, api_keys=KEYS)


@pytest.fixture
def bus(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> Bus:
    """Return the bus of the running installation. No test here uses a database."""
    bus.publish(TOPIC, encode_snapshot(SNAPSHOT))
    monkeypatch.setattr(MODULE, "_bus", lambda: bus)
    return bus


def revoked(bus: Bus) -> list[KeyRevocation]:
    revocations: list[KeyRevocation] = []
    bus.subscribe(TOPIC_PREFIX, lambda _, value: revocations.append(decode_revocation(value)))()
    return revocations


def run(*arguments: str) -> str:
    call_command("revoke_key", *arguments, stdout=(out := io.StringIO()))
    return out.getvalue()


@pytest.mark.parametrize("name", ["key-1", "hw_abcdefgh", "-", TEXT])
def test_key_is_selected_by_id_prefix_or_full_text(bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda: f"{TEXT}\n")
    said = run(name, "--why", "leaked")
    [revocation] = revoked(bus)
    assert (revocation.sha256, revocation.key_id, revocation.by, revocation.via) == (
        KEYS[0].sha256,
        "key-1",
        "revoke_key",
        "command",
    )
    assert revocation.why == "leaked"
    assert "key-1 of tenant acme" in said
    assert TEXT not in said


def test_full_key_missing_from_the_snapshot_is_revoked_too(bus: Bus) -> None:
    said = run("hw_" + "z" * 43)
    assert [item.sha256 for item in revoked(bus)] == [hash_api_key("hw_" + "z" * 43)]
    assert "which no published snapshot has" in said


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("key-9", "No published key"),
        ("hw_", "No published key"),
        ("", "No published key"),
        ("hw_twice000", "key-2, key-3"),
    ],
)
def test_ambiguous_or_unknown_key_revokes_none(bus: Bus, name: str, sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        run(name)
    assert revoked(bus) == []


def test_unavailable_bus_revokes_nothing(bus: InProcessBus) -> None:
    bus.connected = False
    with pytest.raises(CommandError, match="not revoked"):
        run("key-1")
    assert revoked(bus) == []


def test_without_a_published_snapshot_the_one_on_disk_is_used(bus: Bus, tmp_path: Path) -> None:
    bus.publish(TOPIC, b"unreadable")
    SnapshotStore(tmp_path, 1e9).save(SNAPSHOT, 2e9)
    with override_settings(STATE_DIR=tmp_path):
        assert "key-1 of tenant acme" in run("key-1")


def test_command_reports_that_no_server_runs(tmp_path: Path) -> None:
    get_bus.cache_clear()
    with override_settings(STATE_DIR=tmp_path, REDIS_URL=""), pytest.raises(CommandError, match="No bus"):
        run("key-1")
