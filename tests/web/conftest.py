"""What the console's tests share: fake samples, and a Chromium to look at the pages with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.fleet_sample import FleetSample
from tests.web.fake_fleet import FakeFleet
from web.live.feed import FleetFeed, fleet_feed

START = 1_800_000_000.0
"""Unix seconds at which the fake fleets of these tests begin."""


@pytest.fixture
def samples() -> list[FleetSample]:
    """Forty seconds of a small fleet, two samples a second."""
    fleet = FakeFleet(engines=4, pools=2)
    return [fleet.sample_at(step / 2, START) for step in range(80)]


@pytest.fixture
def feed() -> Iterator[FleetFeed]:
    """The process's feed, empty and without a bus; the next test gets a new one."""
    fleet_feed.cache_clear()
    feed = fleet_feed()
    feed.stop()
    yield feed
    feed.stop()
    fleet_feed.cache_clear()


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Path of a Chromium: env CHROMIUM, the system's, or Playwright's own; skips without one, fails under CI=true."""
    found = next((path for path in _candidates() if path and Path(path).is_file()), None)
    if found is None:
        reason = "no Chromium: install the chromium package, run playwright install chromium, or set CHROMIUM"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def _candidates() -> Iterator[str | None]:
    yield os.environ.get("CHROMIUM")
    yield shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    for pattern in ("chromium-*/chrome-linux*/chrome", "chromium_headless_shell-*/*/*headless*shell"):
        yield from (str(path) for path in sorted(cache.glob(pattern), reverse=True))
