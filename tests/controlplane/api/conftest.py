"""The world in which the management API is tested."""

from __future__ import annotations

import pytest

from gateway.bus import Bus
from tests.controlplane.api.world import Api, World, make_world


@pytest.fixture
def world(db: None, bus: Bus) -> World:
    """Return two pools, people of every role, and keys."""
    return make_world()


@pytest.fixture
def api(world: World) -> Api:
    """Return the API as an admin sees it."""
    return Api(world)
