"""The command palette in a browser: keys, groups, and the rows chosen last."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.conftest import OpenPage

pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip


def test_keys_choose_a_row_which_is_offered_as_recent(open_page: OpenPage) -> None:
    page = open_page("viewer")
    page.goto("/audit")
    rows, chosen = page.locator("#palette-list [role=option]"), page.locator("#palette-list [aria-selected=true]")
    page.keyboard.press("Control+k")
    expect(chosen).to_contain_text("Fleet")
    expect(page.locator("#palette-list [aria-label=Recent]")).to_have_count(0)
    page.keyboard.press("ArrowUp")
    expect(rows.last).to_have_attribute("aria-selected", "true")
    page.keyboard.type("job")
    expect(chosen).to_contain_text("Jobs")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs")
    page.keyboard.press("Control+k")
    recent = page.locator("#palette-list [aria-label=Recent] [role=option]")
    expect(recent).to_have_count(1)
    expect(recent).to_contain_text("Jobs")
    expect(recent).to_have_attribute("aria-selected", "true")
    page.keyboard.type("nothing like this")
    expect(page.locator(".palette-none")).to_contain_text("Nothing matches")
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()
