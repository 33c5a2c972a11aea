"""Columns of a fake fleet for history tests."""

from __future__ import annotations

from controlplane.history.bucket import Column
from controlplane.history.window import FleetWindow
from gateway.contracts.fleet_sample import FleetSample
from tests.web.fake_fleet import FakeFleet

START = 1_800_000_000.0


def samples_of(engines: int = 4, seconds: int = 60, begin: float = 0.0, step_s: float = 0.5) -> list[FleetSample]:
    """Return samples of a fake fleet with two pools, starting `begin` seconds after START."""
    fleet = FakeFleet(engines, 2)
    return [fleet.sample_at(begin + step * step_s, START) for step in range(int(seconds / step_s))]


def columns_of(samples: list[FleetSample], column_s: float = 10) -> list[Column]:
    """Return the columns that these samples are merged into."""
    window = FleetWindow(10_000, column_s)
    for sample in samples:
        window.add(sample)
    return window.columns()
