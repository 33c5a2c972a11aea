"""Layout of the Capacity page: no panel overflows a desktop or a phone, and axe reports no serious violation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from pytest_django.live_server_helper import LiveServer

from tests.controlplane.capacity.some_days import days, pools
from tests.web.axe import serious_violations_in_both_themes
from tests.web.role_clients import client_of, make_person

pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip
PICTURES = os.environ.get("CAPACITY_PICTURES", "")


@pytest.fixture
def page(
    browser: Browser, transactional_db: None, live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Page]:
    """Yield a browser page that is signed in as a viewer."""
    pools()
    end = days(1.1, most=12)
    monkeypatch.setattr("web.capacity.page.time", type("Clock", (), {"time": staticmethod(lambda: end)}))
    session = client_of(make_person("viewer")).cookies["sessionid"].value
    context = browser.new_context(base_url=live_server.url, color_scheme="dark")
    context.add_cookies([{"name": "sessionid", "value": session, "url": live_server.url}])
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("width", [1440, 390])
def test_capacity_page_fits_and_has_no_axe_violation(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 1500})
    page.goto("/capacity")
    page.get_by_role("heading", name="Own peaks and shared peak").wait_for()
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"capacity-{width}.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for panel in page.locator(".ledger-panel, .tiles").all():
        box = panel.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert serious_violations_in_both_themes(page) == []
