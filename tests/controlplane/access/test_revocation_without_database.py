"""Keys are revoked while the database is not writable: over the bus at once, in the database once it is writable."""

from __future__ import annotations

import pytest
from django.db import InternalError, OperationalError

from controlplane.access.api_keys import Revoked, change_api_key, create_api_key, revoke_api_key, revoke_at_once
from controlplane.access.stored_revocations import store_waiting
from controlplane.platform.actor import Actor, program
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.outage.bus_revocations import BusRevocations, bus_revocations, revocation_of
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError
from controlplane.platform.snapshot_change import TOPIC as SNAPSHOT
from controlplane.publication.snapshot import build_snapshot, publish
from gateway.access.key_revocation import LOST_TOPIC, KeyRevocation, decode_revocation, encode_revocation
from gateway.bus.bus import Bus, BusAwayError, InProcessBus
from gateway.contracts.snapshot import decode_snapshot
from tests.controlplane.platform.outage.unwritable_database import FULL, unwritable

pytestmark = pytest.mark.django_db
ANN = Actor("ann", "console", request_id="r-1")


@pytest.fixture
def key(tenant: Tenant, bus: Bus) -> ApiKey:
    return create_api_key(tenant, "ci", actor=program("test"))[0]


def on_bus(bus: Bus, key: ApiKey) -> KeyRevocation | None:
    value = bus.latest(f"revoked-keys/{key.sha256}")
    return decode_revocation(value) if value is not None else None


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OperationalError, FULL),
        (OperationalError, "attempt to write a readonly database"),
        (OperationalError, "database is locked"),
        (InternalError, "cannot execute UPDATE in a read-only transaction"),
        (OperationalError, 'could not extend file "base/1": No space left on device'),
        (OperationalError, "server closed the connection unexpectedly"),
    ],
)
def test_revocation_goes_to_the_bus_if_the_database_cannot_store_it(
    key: ApiKey, bus: Bus, error: type[Exception], message: str
) -> None:
    with unwritable(message, error):
        assert revoke_at_once(key, actor=ANN, why="leaked") == Revoked.ON_BUS
    sent = on_bus(bus, key)
    assert sent is not None
    assert (sent.key_id, sent.by, sent.via, sent.why, sent.request_id) == (
        key.key_id,
        "ann",
        "console",
        "leaked",
        "r-1",
    )
    assert sent.stored_as_of == 0
    key.refresh_from_db()
    assert key.revoked_at is None


def test_programming_error_revokes_nothing(key: ApiKey, bus: Bus) -> None:
    with unwritable("no such column: x"), pytest.raises(OperationalError):
        revoke_at_once(key, actor=ANN)
    assert on_bus(bus, key) is None


def test_writable_database_needs_no_bus(key: ApiKey, bus: Bus) -> None:
    assert revoke_at_once(key, actor=ANN) == Revoked.STORED
    assert revoke_at_once(key, actor=ANN) == Revoked.BEFORE
    assert on_bus(bus, key) is None


def test_only_admins_revoke(key: ApiKey, bus: Bus) -> None:
    with unwritable(), pytest.raises(NotAllowedError):
        revoke_at_once(key, actor=Actor("key x", "api", role=Role.OPERATOR))
    assert on_bus(bus, key) is None


def test_revocation_is_stored_with_its_audit_once_the_database_is_writable(key: ApiKey, bus: Bus) -> None:
    with unwritable():
        revoke_at_once(key, actor=ANN, why="leaked")
        assert store_waiting(bus_revocations()) == 0
    assert [bus_revocation.key_id for bus_revocation in bus_revocations().waiting()] == [key.key_id]
    assert bus_revocations().revokes(key.sha256)
    assert store_waiting(bus_revocations()) == 1
    key.refresh_from_db()
    assert key.revoked_at is not None
    event = AuditEvent.objects.get(verb="key.revoke")
    assert (event.actor_name, event.via, event.request_id, event.object_id) == ("ann", "console", "r-1", key.key_id)
    assert event.why.startswith("leaked. The database could not be written; the revocation went over the bus at ")
    sent, snapshot = on_bus(bus, key), build_snapshot(0.0)
    assert sent is not None
    assert sent.stored_as_of == snapshot.version
    assert snapshot.api_keys == ()
    assert (store_waiting(bus_revocations()), bus_revocations().waiting()) == (0, [])
    assert AuditEvent.objects.filter(verb="key.revoke").count() == 1


@pytest.mark.django_db(transaction=True)
def test_snapshot_without_the_key_precedes_the_message_that_it_is_stored(key: ApiKey, bus: InProcessBus) -> None:
    publish()
    with unwritable():
        revoke_at_once(key, actor=ANN)
    seen: list[tuple[int, int]] = []

    def note(_topic: str, value: bytes) -> None:
        latest = bus.latest(SNAPSHOT)
        assert latest is not None
        seen.append((decode_revocation(value).stored_as_of, decode_snapshot(latest).version))

    bus.subscribe(f"revoked-keys/{key.sha256}", note)
    store_waiting(bus_revocations())
    stored_as_of, published = seen[-1]
    assert stored_as_of == published > seen[0][1]


def test_already_revoked_or_unknown_keys_are_settled_too(key: ApiKey, bus: Bus) -> None:
    with unwritable():
        revoke_at_once(key, actor=ANN)
    revoke_api_key(key, actor=program("test"))
    bus_revocations().publish(revocation_of("ab" * 32, "", actor=ANN))
    assert store_waiting(bus_revocations()) == 2
    assert AuditEvent.objects.filter(verb="key.revoke").count() == 1
    assert bus_revocations().waiting() == []


def test_two_workers_store_a_revocation_once(key: ApiKey, bus: Bus) -> None:
    with unwritable():
        revoke_at_once(key, actor=ANN)
    one, other = BusRevocations(bus), BusRevocations(bus)
    waiting = other.waiting()
    store_waiting(one)
    other._known.update({item.sha256: item for item in waiting})
    store_waiting(other)
    assert AuditEvent.objects.filter(verb="key.revoke").count() == 1


def test_later_change_of_a_key_does_not_undo_its_revocation(key: ApiKey, bus: Bus) -> None:
    with unwritable():
        revoke_at_once(key, actor=ANN)
    change_api_key(key, {"name": "renamed"}, actor=program("test"))
    store_waiting(bus_revocations())
    key.refresh_from_db()
    assert key.revoked_at is not None


def test_revocation_kept_on_a_gateways_disk_is_republished_and_stored(key: ApiKey, bus: Bus) -> None:
    kept, waiting = revocation_of(key.sha256, key.key_id, actor=ANN), bus_revocations()
    bus.append(LOST_TOPIC, encode_revocation(kept))
    bus.append(LOST_TOPIC, b"rubbish")
    assert on_bus(bus, key) == kept
    assert store_waiting(waiting) == 1


def test_stale_message_does_not_reset_the_stored_state(key: ApiKey, bus: Bus) -> None:
    with unwritable():
        revoke_at_once(key, actor=ANN)
    old = on_bus(bus, key)
    assert old is not None
    store_waiting(bus_revocations())
    bus.append(LOST_TOPIC, encode_revocation(old))
    assert bus_revocations().waiting() == []
    sent = on_bus(bus, key)
    assert sent is not None
    assert sent.stored_as_of


def test_revocation_without_database_and_bus_raises(key: ApiKey, bus: InProcessBus) -> None:
    bus.connected = False
    with unwritable(), pytest.raises(BusAwayError):
        revoke_at_once(key, actor=ANN)
    assert on_bus(bus, key) is None
