"""Fixtures of the console's tests: fake samples and Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.test import Client
from playwright.sync_api import Browser, Page
from pytest_django.live_server_helper import LiveServer

from controlplane.fleet.models.pool import Pool
from gateway.contracts.fleet_sample import FleetSample
from tests.browser import browser, chromium_path, trouble, watched_page
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


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(
    browser: Browser, transactional_db: None, live_server: LiveServer, trouble: list[str]
) -> Iterator[OpenPage]:
    """Open pages that are signed in with a role, in contexts with these options, until the test ends."""
    with ExitStack() as contexts:

        def opened(role: str, **options: Any) -> Page:
            session = client_of(make_person(role)).cookies["sessionid"].value
            context = browser.new_context(base_url=live_server.url, **options)
            contexts.callback(context.close)
            context.add_cookies([{"name": "sessionid", "value": session, "url": live_server.url}])
            return watched_page(context, trouble)

        yield opened


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
