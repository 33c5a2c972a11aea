"""Decisions in a browser, served by this process: strict policy, axe, keys, live rows, and the time strip."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Page, expect

from tests.controlplane.request_log.store.records import keep, on_time, stored
from tests.web.axe import serious_violations_in_both_themes
from tests.web.conftest import OpenPage
from tests.web.role_clients import make_pool

pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip

LATE = "0199f3c2-7d41-7c0e-8000-000000000001"


@pytest.fixture
def kept(transactional_db: None) -> None:
    """Store a minute of decisions, one of them late."""
    make_pool("pool-a")
    now = time.time()
    keep(stored(LATE, now - 30), *(on_time(f"d-{number}", now - 60 + number) for number in range(50)))


@pytest.fixture
def page(kept: None, open_page: OpenPage) -> Page:
    """Return a browser page that is signed in as an operator, who may start trials."""
    return open_page("operator", viewport={"width": 1440, "height": 1000})


def test_decision_pages_have_no_axe_violation_in_either_theme(page: Page, trouble: list[str]) -> None:
    for address in ("/requests", f"/requests/{LATE}"):
        page.goto(address)
        assert serious_violations_in_both_themes(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert trouble == []


@pytest.mark.parametrize("width", [390, 768])
def test_decision_pages_fit_narrow_screens(page: Page, trouble: list[str], width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    for address in ("/requests?tenant=acme&state=late", f"/requests/{LATE}"):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
    assert trouble == []


def test_late_decision_is_opened_and_left_by_keys(page: Page, trouble: list[str]) -> None:
    page.goto("/requests?late=1")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(
        "Sent to e-17 for its cache; e-04 would have been 2.73 s faster"
    )
    before = page.url
    page.keyboard.press("j")
    page.wait_for_url(lambda url: url != before)
    page.keyboard.press("x")
    page.wait_for_url("**/trials?new&pool=pool-a")
    page.go_back()
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/requests")
    assert trouble == []


def test_live_rows_pause_while_the_pointer_is_on_them(page: Page, kept: None, trouble: list[str]) -> None:
    page.goto("/requests")
    rows = page.locator("#decision-rows tr")
    shown = rows.count()
    keep(on_time("fresh-1", time.time()))
    expect(rows).to_have_count(shown + 1)
    page.hover("#decision-rows tr:nth-child(3)")
    keep(on_time("fresh-2", time.time()), on_time("fresh-3", time.time()))
    expect(page.locator("#tap-news")).to_have_text("2 new")
    expect(rows).to_have_count(shown + 1)
    page.click("#tap-news")
    expect(rows).to_have_count(shown + 3)
    page.keyboard.press("t")
    expect(page.get_by_role("region", name="Decisions per second, table")).to_be_visible()
    assert trouble == []


def test_dragging_on_the_strip_filters_by_time(page: Page, trouble: list[str]) -> None:
    page.goto("/requests")
    box = page.locator("#strip-body").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.99, box["y"] + 20)
    page.mouse.up()
    page.wait_for_url("**since=*")
    assert page.locator(".ledger-chips li").count() == 3
    assert trouble == []
