"""`manage.py revoke_key`: revokes an API key over the bus, without the database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from typing_extensions import override

from controlplane.access.api_keys import PREFIX_LENGTH
from controlplane.platform.actor import command
from controlplane.platform.bus import get_bus, join_running
from controlplane.platform.environment import PROGRAM
from controlplane.platform.models.api_key import KEY_START, hash_api_key
from controlplane.platform.outage.bus_revocations import BusRevocations, revocation_of
from controlplane.platform.snapshot_change import TOPIC as SNAPSHOT
from gateway.access.key_revocation import MAX_WHY
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import Bus, BusAwayError
from gateway.bus.snapshot_store import SnapshotStore
from gateway.contracts.snapshot import ApiKeyEntry, decode_snapshot
from gateway.contracts.wire import UnreadableMessageError
from routing.values.counted import count


class Command(BaseCommand):
    """Needs only the bus and the fleet secret. The jobs store the revocation and its audit event later."""

    requires_system_checks = ()
    help = "Revoke an API key at every gateway on the bus, even if the database is full or unavailable."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument(
            "key",
            help=f"its id (key-…), its first {PREFIX_LENGTH} characters ({KEY_START}…), or - to read the whole key "
            "from standard input",
        )
        parser.add_argument("--why", default="", help="reason, for the audit")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Publish the revocation, and print how many processes have received it."""
        bus, why = _bus(), options["why"][:MAX_WHY]
        revocations = BusRevocations(bus)
        secrets, entry = _wanted(options["key"], bus)
        key_id, actor, received = entry.key_id if entry is not None else "", command("revoke_key"), 0
        try:
            for sha256 in secrets:
                received = revocations.publish(revocation_of(sha256, key_id, actor=actor, why=why))
        except BusAwayError as error:
            raise CommandError(f"The key is not revoked: {error}. {_REMEDY}") from error
        named = f"{key_id} of tenant {entry.tenant_id}" if entry is not None else "which no published snapshot has"
        # This process follows the bus, too.
        others = count(max(0, received - 1), "process", "processes")
        self.stdout.write(f"The bus has the revocation of the key, {named}; {others} received it immediately.")
        self.stdout.write(
            "Disconnected gateways receive it when they reconnect to the bus. The jobs store it in the database."
        )


_REMEDY = f"Check REDIS_URL and HEADWAY_FLEET_SECRET, or run it on the machine where `{PROGRAM} up` runs."


def _bus() -> Bus:
    if not join_running():
        raise CommandError(f"No bus: no server runs on {settings.STATE_DIR}, and REDIS_URL is not set. {_REMEDY}")
    return get_bus()


def _wanted(name: str, bus: Bus) -> tuple[list[str], ApiKeyEntry | None]:
    """Return the SHA-256 of each secret of the named key, and its published entry; None if it is not published."""
    entries = _published(bus)
    sha256, entry = _named(name, entries)
    # During the overlap of a rotation, a key has two secrets.
    return [sha256, *_others(sha256, entry, entries)], entry


def _others(sha256: str, entry: ApiKeyEntry | None, entries: Sequence[ApiKeyEntry]) -> list[str]:
    if entry is None:
        return []
    return [other.sha256 for other in entries if other.key_id == entry.key_id and other.sha256 != sha256]


def _named(name: str, entries: Sequence[ApiKeyEntry]) -> tuple[str, ApiKeyEntry | None]:
    text = input().strip() if name == "-" else name
    if name == "-" or (text.startswith(KEY_START) and len(text) > PREFIX_LENGTH):
        sha256 = hash_api_key(text)
        return sha256, next((entry for entry in entries if entry.sha256 == sha256), None)
    if name.startswith(KEY_START):
        matches = [entry for entry in entries if entry.prefix and entry.prefix == name]
    else:
        matches = [entry for entry in entries if entry.key_id == name and not entry.previous]
    if len(matches) > 1:
        raise CommandError(
            f"Several keys begin with {name}: {', '.join(item.key_id for item in matches)}. Name one by id."
        )
    if not matches:
        raise CommandError(
            f"No published key has this id, or these first {PREFIX_LENGTH} characters. Give the id, or - and the whole "
            "key on standard input."
        )
    return matches[0].sha256, matches[0]


def _published(bus: Bus) -> tuple[ApiKeyEntry, ...]:
    """Return the keys of the published snapshot or, without one, of a gateway's stored snapshot on this machine."""
    latest = bus.latest(SNAPSHOT)
    try:
        snapshot = decode_snapshot(latest) if latest is not None else None
    except UnreadableMessageError:
        snapshot = None
    store = SnapshotStore(settings.STATE_DIR, GatewaySettings().snapshot_max_age_s)
    snapshot = snapshot or store.load(time.time())
    return snapshot.api_keys if snapshot is not None else ()
