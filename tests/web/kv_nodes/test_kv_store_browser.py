"""Layout of the KV store page: no panel overflows a desktop or a phone, and the page refreshes itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page

from controlplane.fleet.models.pool import Pool
from controlplane.kv_nodes.models.kv_node import KvNode
from tests.controlplane.trials.whatif.installation import live_and_draft
from tests.web.axe import assert_fits
from tests.web.conftest import OpenPage
from tests.web.kv_nodes.some_nodes import all_states, intake_of
from tests.web.role_clients import client_of, make_person, make_pool
from web.kv_nodes import prefix_rows

pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip
PICTURES = os.environ.get("KV_PICTURES", "")


@pytest.fixture
def pool(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Pool:
    pool = make_pool()
    all_states(pool)
    live_and_draft(pool)
    monkeypatch.setattr(prefix_rows, "cache_locality_intake", lambda: intake_of(pool))
    return pool


@pytest.fixture
def page(pool: Pool, open_page: OpenPage) -> Page:
    """Return a browser page that is signed in as a viewer; themes differ in colors only."""
    return open_page("viewer", color_scheme="dark")


def test_kv_store_page_fits_and_refreshes_itself(page: Page) -> None:
    page.goto("/cache/store")
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 2000 if PICTURES else 900})
        if PICTURES:
            page.screenshot(path=Path(PICTURES) / f"kv-{width}.png")
        assert_fits(page, width)
        bar = page.locator(".kv-used").first.bounding_box()
        assert bar is not None
        assert bar["width"] > 20
    assert "kv-3 is silent." in page.inner_text("h1")
    KvNode.objects.filter(name="kv-3").update(state="gone")
    page.get_by_role("heading", name="Corrupt copies on kv-3.").wait_for()


def test_operator_unpins_after_a_confirmation(page: Page) -> None:
    session = client_of(make_person("operator")).cookies["sessionid"].value
    page.context.clear_cookies()
    page.goto("/cache/store")
    page.context.add_cookies([{"name": "sessionid", "value": session, "url": page.url}])
    page.goto("/cache/store")
    page.get_by_role("link", name="Unpin c0ffee00 on kv-1").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("heading", name="Unpin c0ffee00 on kv-1?").wait_for()
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / "unpin.png")
    dialog.get_by_label("Why").fill("room for others")
    dialog.get_by_role("button", name="Unpin").click()
    page.get_by_text("The node applies it").wait_for()
    page.get_by_text("Unpinning…").wait_for()
    if PICTURES:
        page.get_by_text("Unpinning…").scroll_into_view_if_needed()
        page.screenshot(path=Path(PICTURES) / "unpinned.png")
