"""A pool of four engines for tests of automations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controlplane.fleet.models.pool import Pool
from gateway.bus.bus import Bus
from tests.controlplane.automation.world import World


@pytest.fixture
def world(pool: Pool, bus: Bus) -> Iterator[World]:
    """Return a pool of four healthy engines, first reported at the current time."""
    world = World(pool, 4)
    world.publish()
    yield world
    world.observed.stop()
