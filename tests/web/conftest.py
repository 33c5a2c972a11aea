"""Fixtures of the console's tests: fake samples and Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.contracts.fleet_sample import FleetSample
from tests.browser import browser, chromium_path, trouble
from tests.program import program
from tests.web.fake_fleet import FakeFleet
from web.live.feed import FleetFeed, fleet_feed

__all__ = ["browser", "chromium_path", "program", "trouble"]

START = 1_800_000_000.0
"""Unix seconds at which the fake fleets of these tests begin."""


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
