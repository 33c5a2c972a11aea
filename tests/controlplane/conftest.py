"""Objects that most tests of the control plane use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.platform.bus import get_bus
from controlplane.platform.models.tenant import Tenant
from controlplane.policies.models.policy import Policy
from gateway.bus.bus import Bus


@pytest.fixture
def bus() -> Iterator[Bus]:
    """Return the process's bus, which is empty."""
    get_bus.cache_clear()
    yield get_bus()
    get_bus.cache_clear()


@pytest.fixture
def region(db: None) -> Region:
    """Store and return a region."""
    return Region.objects.create(slug="here", name="Here")


@pytest.fixture
def policy(db: None) -> Policy:
    """Store and return a policy without versions."""
    return Policy.objects.create(slug="p", name="P")


@pytest.fixture
def pool(region: Region, policy: Policy) -> Pool:
    """Store and return a pool without engines."""
    return Pool.objects.create(slug="chat", name="Chat", region=region, served_model="m-8b", policy=policy)


@pytest.fixture
def tenant(db: None) -> Tenant:
    """Store and return a tenant."""
    return Tenant.objects.create(slug="acme", name="Acme")
