"""Layout of the Capacity page: no panel overflows a desktop or a phone, and axe reports no serious violation."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Page

from controlplane.capacity.demand import logged_demand
from tests.controlplane.capacity.some_days import days, pools
from tests.web.axe import assert_fits, serious_violations, serious_violations_in_both_themes
from tests.web.conftest import OpenPage

pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip
PICTURES = os.environ.get("CAPACITY_PICTURES", "")


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, open_page: OpenPage) -> Page:
    """Return a browser page that is signed in as a viewer."""
    pools()
    logged = logged_demand(days(1.1, most=12), 30)
    assert logged is not None
    monkeypatch.setattr("web.capacity.page.stored_demand", lambda: (logged, timezone.now()))
    return open_page("viewer", color_scheme="dark")


def test_capacity_page_fits_and_has_no_axe_violation(page: Page) -> None:
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 1500})
        page.goto("/regions/capacity")
        page.get_by_role("heading", name="Demand").wait_for()
        if PICTURES:
            page.screenshot(path=Path(PICTURES) / f"capacity-{width}.png")
        assert_fits(page, width)
        assert (serious_violations_in_both_themes if width == 1440 else serious_violations)(page) == []
