"""Fixtures of the management API's tests."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
from django.db import transaction
from django.test import Client
from pytest_django import DjangoDbBlocker

from gateway.bus.bus import Bus
from tests.controlplane.platform.api.world import Api, World, make_world


@pytest.fixture(scope="module")
def shared_world(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[World]:
    """Store a world once for all tests of a module, with everyone signed in. Each test reverts its changes."""
    with django_db_blocker.unblock(), transaction.atomic():
        world = make_world()
        for name in world.people:
            world.sign_in(Client(), name)
        yield world
        transaction.set_rollback(True)


@pytest.fixture
def world(shared_world: World, db: None, bus: Bus) -> World:
    """Return two pools, people of every role, and keys."""
    return copy.deepcopy(shared_world)


@pytest.fixture
def api(world: World) -> Api:
    """Return the API client of an admin."""
    return Api(world)
