"""The job that stores last uses subscribes with its first run."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from django.utils import timezone

from controlplane.access.api_keys import create_api_key
from controlplane.access.key_usage import intake, store_key_usage
from controlplane.platform.actor import program
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.tenant import Tenant
from gateway.bus.bus import Bus
from gateway.reports.key_usage import TOPIC, KeyLastUses


@pytest.fixture(autouse=True)
def own_intake(bus: Bus) -> Iterator[None]:
    intake.cache_clear()
    yield
    intake.cache_clear()


def test_use_reported_between_two_runs_is_stored_by_the_second(bus: Bus, tenant: Tenant) -> None:
    key, _ = create_api_key(tenant, "k", actor=program("test"))
    store_key_usage()
    now = timezone.now()
    bus.append(TOPIC, msgspec.msgpack.encode(KeyLastUses({key.key_id: now.timestamp()})))
    store_key_usage()
    assert abs((ApiKey.objects.get().last_used_at - now).total_seconds()) < 0.001
