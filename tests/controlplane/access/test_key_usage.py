"""Last uses are stored in the database, at most once a minute for each key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from pytest_django import DjangoAssertNumQueries

from controlplane.access.api_keys import create_api_key
from controlplane.access.key_usage import KeyUsageIntake, store_last_uses
from controlplane.platform.actor import program
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.tenant import Tenant
from gateway.bus.bus import Bus
from gateway.reports.key_usage import TOPIC, KeyLastUses

pytestmark = pytest.mark.django_db
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def key(tenant: Tenant) -> ApiKey:
    return create_api_key(tenant, "k", actor=program("test"))[0]


def used(bus: Bus, **at: datetime) -> None:
    bus.append(TOPIC, msgspec.msgpack.encode(KeyLastUses({name: when.timestamp() for name, when in at.items()})))


def last_use(key: ApiKey) -> datetime | None:
    return ApiKey.objects.get(pk=key.pk).last_used_at


def test_uses_reported_over_the_bus_are_stored(bus: Bus, key: ApiKey) -> None:
    intake = KeyUsageIntake(bus)
    used(bus, **{key.key_id: NOW - timedelta(seconds=9), "key-unknown": NOW})
    used(bus, **{key.key_id: NOW - timedelta(seconds=3)})
    assert intake.store(NOW) == 1
    assert last_use(key) == NOW - timedelta(seconds=3)
    assert intake.store(NOW) == 0


def test_key_is_written_once_a_minute_without_losing_its_last_use(bus: Bus, key: ApiKey) -> None:
    intake = KeyUsageIntake(bus)
    writes = 0
    for second in range(0, 121, 5):
        used(bus, **{key.key_id: NOW + timedelta(seconds=second)})
        writes += intake.store(NOW + timedelta(seconds=second))
    assert writes == 3
    used(bus, **{key.key_id: NOW + timedelta(seconds=130)})
    assert intake.store(NOW + timedelta(seconds=130)) == 0
    assert intake.store(NOW + timedelta(seconds=200)) == 1
    assert last_use(key) == NOW + timedelta(seconds=130)


def test_last_use_never_moves_back_or_into_the_future(key: ApiKey) -> None:
    store_last_uses({key.key_id: NOW + timedelta(days=1)}, NOW)
    assert last_use(key) == NOW
    assert store_last_uses({key.key_id: NOW - timedelta(days=1)}, NOW + timedelta(hours=1)) == ({key.key_id}, 0)
    assert last_use(key) == NOW


def test_invalid_bus_messages_are_skipped(bus: Bus, key: ApiKey, caplog: pytest.LogCaptureFixture) -> None:
    intake = KeyUsageIntake(bus)
    bus.append(TOPIC, b"\xff garbage")
    used(bus, **{key.key_id: NOW})
    assert intake.store(NOW) == 1
    assert "cannot be read" in caplog.text


def test_stopped_intake_receives_nothing(bus: Bus, key: ApiKey) -> None:
    intake = KeyUsageIntake(bus)
    intake.stop()
    used(bus, **{key.key_id: NOW})
    assert intake.store(NOW) == 0


def test_last_use_does_not_change_the_revision_of_a_key(bus: Bus, key: ApiKey) -> None:
    store_last_uses({key.key_id: NOW}, NOW)
    assert ApiKey.objects.get(pk=key.pk).revision == key.revision


def test_many_idle_keys_take_few_queries(
    bus: Bus, key: ApiKey, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    store_last_uses({key.key_id: NOW}, NOW)
    uses = {f"key-{number}": NOW for number in range(900)} | {key.key_id: NOW}
    with django_assert_num_queries(2):
        assert store_last_uses(uses, NOW + timedelta(seconds=5))[1] == 0
