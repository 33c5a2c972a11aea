"""After a restore, snapshot versions continue above those that gateways have served, with an audit event."""

from __future__ import annotations

import pytest
from django.db import transaction

from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.snapshot_version import SnapshotVersion
from controlplane.platform.snapshot_change import TOPIC, record_change
from controlplane.publication.continued_versions import VERB, continue_above, version_on_bus
from controlplane.publication.snapshot import publish, publish_if_newer
from gateway.bus.bus import Bus
from gateway.contracts.fleet_sample import TOPIC as SAMPLES
from gateway.contracts.fleet_sample import FleetSample, encode_sample
from gateway.contracts.snapshot import Snapshot, encode_snapshot

pytestmark = pytest.mark.django_db(transaction=True)


def at_version(version: int) -> None:
    SnapshotVersion.objects.update_or_create(pk=SnapshotVersion.ONLY, defaults={"version": version})


def versions_audited() -> list[tuple[int, int]]:
    events = AuditEvent.objects.filter(verb=VERB).order_by("pk")
    return [(event.before["version"], event.after["version"]) for event in events]


def gateway_serves(bus: Bus, name: str, version: int) -> None:
    sample = FleetSample(seq=1, at=1e9, window_s=60.0, snapshot_version=version, engines=(), pools=())
    bus.publish(f"gateways/{name}/{SAMPLES}", encode_sample(sample))


def test_next_version_is_above_every_published_one(bus: Bus) -> None:
    at_version(41)
    bus.publish(TOPIC, encode_snapshot(Snapshot(version=57, published_at=1.0)))
    assert publish().version == version_on_bus() == 58
    assert versions_audited() == [(41, 58)]
    with transaction.atomic():
        record_change()
    assert version_on_bus() == 59
    assert versions_audited() == [(41, 58)]


def test_change_after_a_restore_is_not_published_under_an_old_version(bus: Bus) -> None:
    at_version(41)
    seen: list[bytes] = []
    bus.publish(TOPIC, encode_snapshot(Snapshot(version=57, published_at=1.0)))
    bus.subscribe(TOPIC, lambda _topic, value: seen.append(value))
    with transaction.atomic():
        record_change()
    assert version_on_bus() == 58
    assert len(seen) >= 1


def test_gateway_that_returns_with_a_newer_version_raises_the_next_one(bus: Bus) -> None:
    at_version(41)
    publish()
    assert publish_if_newer() is None
    gateway_serves(bus, "one", 41)
    gateway_serves(bus, "two", 57)
    publish_if_newer()
    assert version_on_bus() == 58
    gateway_serves(bus, "two", 58)
    assert publish_if_newer() is None
    assert versions_audited() == [(41, 58)]


def test_up_to_date_database_is_unchanged(bus: Bus) -> None:
    at_version(57)
    assert not continue_above(57)
    assert not continue_above(0)
    assert SnapshotVersion.objects.get().version == 57
    assert versions_audited() == []


def test_new_database_with_an_old_gateway_continues_its_versions(bus: Bus) -> None:
    assert continue_above(57)
    assert version_on_bus() == 58
    assert versions_audited() == [(0, 58)]
