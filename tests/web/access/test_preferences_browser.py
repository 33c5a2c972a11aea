"""Server and scripts write times in the browser's zone, and views are saved from the menu of a narrow page."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.conftest import OpenPage

pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip


def test_pages_are_in_the_browsers_zone_from_the_second_on(open_page: OpenPage) -> None:
    page = open_page("viewer", timezone_id="Asia/Tokyo")
    page.goto("/help")
    assert [cookie["value"] for cookie in page.context.cookies() if cookie["name"] == "time_zone"] == ["Asia/Tokyo"]
    page.goto("/requests")
    expect(page.locator("footer.status")).to_contain_text("times in Asia/Tokyo")
    assert page.evaluate("document.documentElement.dataset.timeZone") == "Asia/Tokyo"


@pytest.mark.parametrize("width", [1280, 390])
def test_view_is_saved_and_opened_from_the_menu(open_page: OpenPage, width: int) -> None:
    page = open_page("operator", viewport={"width": width, "height": 800})
    page.goto("/usage?days=30")
    page.locator("#views-menu summary").click()
    page.get_by_label("Name of these filters").fill("A month")
    page.get_by_label("Share with everyone").check()
    page.get_by_role("button", name="Save view").click()
    page.goto("/usage")
    page.locator("#views-menu summary").click()
    item = page.locator("#views-menu").get_by_role("link", name="A month")
    box = item.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    item.click()
    expect(page).to_have_url("/usage?days=30")
