"""Fake samples for history tests."""

from __future__ import annotations

import pytest

from gateway.contracts.fleet_sample import FleetSample
from tests.web.fake_fleet import FakeFleet

START = 1_800_000_000.0


@pytest.fixture
def samples() -> list[FleetSample]:
    """Return forty seconds of a small fleet, two samples a second."""
    fleet = FakeFleet(engines=4, pools=2)
    return [fleet.sample_at(step / 2, START) for step in range(80)]
