"""Layout of the Sovereignty page: no panel overflows a desktop or a phone, and axe reports no serious violation."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Page

from controlplane.fleet.sovereignty import cost
from controlplane.platform.jobs import calculation
from simulator.regions.sovereignty_cost import Served, SovereigntyCost
from tests.web.axe import assert_fits, serious_violations, serious_violations_in_both_themes
from tests.web.conftest import OpenPage
from tests.web.fleet.sovereignty.some_regions import put_in_force, some_regions

pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip
COST = SovereigntyCost(
    {"asia": 1, "eu": 1, "us": 2},
    Served(1022.4, 0.81, 0.41, 1.0),
    Served(903.1, 4.62, 0.22, 0.8833),
    {"clinic stays": Served(905.0, 4.58, 0.23, 0.8852), "into the EU": Served(851.5, 7.2, 0.11, 0.8328)},
)
PICTURES = os.environ.get("SOVEREIGNTY_PICTURES", "")


@pytest.fixture
def page(transactional_db: None, open_page: OpenPage) -> Page:
    """Return a browser page that is signed in as an admin."""
    some_regions()
    put_in_force()
    return open_page("admin", color_scheme="dark")


def test_sovereignty_page_fits_and_has_no_axe_violation(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calculation, "run_child", lambda *args, **options: msgspec.json.encode(COST))
    page.goto("/regions/sovereignty")
    page.get_by_label("Name").last.fill("US stays")
    page.get_by_role("group", name="Arrive in").last.get_by_label("us").check()
    page.get_by_role("button", name="Simulate the cost").click()
    page.get_by_text("without each rule").wait_for()
    cost.sovereignty_cost()
    page.get_by_text("Throughput under the rules").wait_for()
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 2400})
        if PICTURES:
            page.screenshot(path=Path(PICTURES) / f"sovereignty-{width}.png")
        assert_fits(page, width)
        assert (serious_violations_in_both_themes if width == 1440 else serious_violations)(page) == []
