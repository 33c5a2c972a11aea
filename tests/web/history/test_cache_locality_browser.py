"""The Cache locality page in a browser: strict policy, axe, selection by click and key, and tables that stay open."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.web.axe import serious_violations_in_both_themes
from tests.web.conftest import OpenPage
from tests.web.fleet.topology.topology_fleet import make_engines
from tests.web.history.cache_locality_sample import intake_of, pool_cache_locality
from tests.web.role_clients import make_pool
from web.history import cache_locality

pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip


def test_charts_update_in_place_and_have_tables(
    transactional_db: None, open_page: OpenPage, trouble: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    word = pool_cache_locality(make_engines(make_pool(), 4))
    monkeypatch.setattr(cache_locality, "cache_locality_intake", lambda: intake_of(word))
    page = open_page("viewer", viewport={"width": 1280, "height": 1000})
    page.goto("/cache/pools/chat")
    link = page.locator(".split-row .quiet-link").first.bounding_box()
    assert link
    assert link["height"] < 20, "the link to late decisions breaks into a word beside the p90"

    page.keyboard.press("t")
    expect(page.locator("details.cache-locality-twin[open]")).to_have_count(3)
    page.locator("#cache-locality-rings").get_by_role("link", name="e-0003").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#cache-locality-rings .readout")).to_contain_text("Without e-0003")
    assert page.url.endswith("?without=e-0003")
    page.get_by_role("link", name=re.compile("^bb1200, 3 blk: blocks 7 to 9")).click()
    expect(page.locator("#cache-locality-prefixes .readout")).to_contain_text("held by no engine")
    page.keyboard.press("3")
    expect(page.locator('#cache-locality-ttft [aria-current="true"]')).to_have_text("15 min")
    assert "window=15" in page.url
    assert "without=e-0003" in page.url
    expect(page.locator("details.cache-locality-twin[open]")).to_have_count(3)

    assert serious_violations_in_both_themes(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.keyboard.press("Escape")
    expect(page.locator("#cache-locality-rings .readout")).to_contain_text("Select an engine")
    assert trouble == []
