"""Fixtures of the console's tests: fake samples and Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from controlplane.fleet.models.pool import Pool
from gateway.contracts.fleet_sample import FleetSample
from tests.browser import browser, chromium_path, trouble
from tests.program import program
from tests.web.fake_fleet import FakeFleet
from tests.web.role_clients import client_of, make_person, make_pool
from web.live.feed import FleetFeed, fleet_feed

__all__ = ["browser", "chromium_path", "program", "trouble"]

START = 1_800_000_000.0
"""Unix seconds at which the fake fleets of these tests begin."""


@pytest.fixture
def pool(db: None) -> Pool:
    """Return a pool without engines."""
    return make_pool()


@pytest.fixture
def operator(pool: Pool) -> Client:
    return client_of(make_person("operator"))


@pytest.fixture
def viewer(pool: Pool) -> Client:
    return client_of(make_person("viewer"))


@pytest.fixture(scope="module")
def database_beside_playwright() -> Iterator[None]:
    """Let Django query the database in this thread, in which Playwright runs an event loop."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield


@pytest.fixture
def samples() -> list[FleetSample]:
    """Return forty seconds of a small fleet, two samples a second."""
    fleet = FakeFleet(engines=4, pools=2)
    return [fleet.sample_at(step / 2, START) for step in range(80)]


@pytest.fixture
def feed() -> Iterator[FleetFeed]:
    """Yield the process's feed, empty and without a bus; reset it afterwards."""
    fleet_feed.cache_clear()
    feed = fleet_feed()
    feed.stop()
    yield feed
    feed.stop()
    fleet_feed.cache_clear()
