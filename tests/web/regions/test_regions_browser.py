"""Layout of the Regions page: no panel overflows a desktop or a phone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from pytest_django.live_server_helper import LiveServer

from tests.web.regions.some_regions import busy
from tests.web.role_clients import client_of, make_person
from web.regions import page as regions_page

pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip
PICTURES = os.environ.get("REGIONS_PICTURES", "")


class Samples:
    """The fleet samples that the page shows."""

    latest = busy()


@pytest.fixture(params=["dark", "light"])
def page(
    request: pytest.FixtureRequest, browser: Browser, transactional_db: None, live_server: LiveServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Page]:  # fmt: skip
    """Yield a browser page that is signed in as a viewer, in each theme."""
    monkeypatch.setattr(regions_page, "fleet_samples", Samples)
    session = client_of(make_person("viewer")).cookies["sessionid"].value
    context = browser.new_context(base_url=live_server.url, color_scheme=request.param)
    context.add_cookies([{"name": "sessionid", "value": session, "url": live_server.url}])
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("width", [1440, 390])
def test_regions_page_fits(page: Page, width: int, request: pytest.FixtureRequest) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/regions")
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{request.node.callspec.id}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for panel in page.locator(".ledger-panel, .tiles").all():
        box = panel.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    ribbon = page.locator(".regions-ribbon-forwarded").first.bounding_box()
    assert ribbon is not None
    assert ribbon["width"] > 100
