"""Layout of the Regions page: no panel overflows a desktop or a phone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.web.axe import assert_fits
from tests.web.conftest import OpenPage
from tests.web.regions.some_regions import busy
from web.regions import page as regions_page

pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip
PICTURES = os.environ.get("REGIONS_PICTURES", "")


class Samples:
    """The fleet samples that the page shows."""

    latest = busy()


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, open_page: OpenPage) -> Page:
    """Return a browser page that is signed in as a viewer; themes differ in colors only."""
    monkeypatch.setattr(regions_page, "fleet_samples", Samples)
    return open_page("viewer", color_scheme="dark")


def test_regions_page_fits(page: Page) -> None:
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto("/regions")
        if PICTURES:
            page.screenshot(path=Path(PICTURES) / f"regions-{width}.png", full_page=True)
        assert_fits(page, width)
        ribbon = page.locator(".regions-ribbon-forwarded").first.bounding_box()
        assert ribbon is not None
        assert ribbon["width"] > 100
