"""Layout of the Sovereignty page: no panel overflows a desktop or a phone, and axe reports no serious violation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from pytest_django.live_server_helper import LiveServer

from simulator.regions.sovereignty_cost import Served, SovereigntyCost
from tests.web.axe import serious_violations_in_both_themes
from tests.web.fleet.sovereignty.some_regions import put_in_force, some_regions
from tests.web.role_clients import client_of, make_person

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
def page(browser: Browser, transactional_db: None, live_server: LiveServer) -> Iterator[Page]:
    """Yield a browser page that is signed in as an admin."""
    some_regions()
    put_in_force()
    session = client_of(make_person("admin")).cookies["sessionid"].value
    context = browser.new_context(base_url=live_server.url, color_scheme="dark")
    context.add_cookies([{"name": "sessionid", "value": session, "url": live_server.url}])
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("width", [1440, 390])
def test_sovereignty_page_fits_and_has_no_axe_violation(
    page: Page, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("web.fleet.sovereignty.page.sovereignty_cost", lambda document: COST)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/sovereignty")
    page.get_by_label("Name").last.fill("US stays")
    page.get_by_label("Arrive in").last.fill("us")
    page.get_by_role("button", name="Simulate the cost").click()
    page.get_by_role("heading", name="Cost").wait_for()
    if PICTURES:
        page.set_viewport_size({"width": width, "height": 2400})
        page.screenshot(path=Path(PICTURES) / f"sovereignty-{width}.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for panel in page.locator(".ledger-panel").all():
        box = panel.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert serious_violations_in_both_themes(page) == []
