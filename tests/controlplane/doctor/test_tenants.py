"""The doctor names pools in which one tenant can detect the prompts of another."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.utils import timezone

from controlplane.doctor import fleet
from controlplane.doctor.finding import State
from controlplane.doctor.installation import Installation
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.topology import change_pool
from controlplane.platform.actor import program
from controlplane.platform.models.tenant import Tenant
from gateway.bus.bus import Bus

pytestmark = pytest.mark.django_db


def test_pools_with_caches_shared_by_tenants_are_named(pool: Pool, tenant: Tenant, bus: Bus, tmp_path: Path) -> None:
    here = Installation(tmp_path, "127.0.0.1", 1, "", timezone.now())
    assert [item.state for item in fleet.tenants(here)] == [State.OK]
    Tenant.objects.create(slug="zed", name="Zed")
    (finding,) = fleet.tenants(here)
    assert (finding.state, pool.slug in finding.says) == (State.WARNING, True)
    change_pool(pool, {"isolated": True}, actor=program("test"))
    assert [item.state for item in fleet.tenants(here)] == [State.OK]
