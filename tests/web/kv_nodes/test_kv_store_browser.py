"""Layout of the KV store page: no panel overflows a desktop or a phone, and the page refreshes itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from pytest_django.live_server_helper import LiveServer

from controlplane.fleet.models.pool import Pool
from controlplane.kv_nodes.models.kv_node import KvNode
from tests.controlplane.trials.whatif.installation import live_and_draft
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


@pytest.fixture(params=["dark", "light"])
def page(request: pytest.FixtureRequest, browser: Browser, pool: Pool, live_server: LiveServer) -> Iterator[Page]:
    """Yield a browser page that is signed in as a viewer, in each theme."""
    session = client_of(make_person("viewer")).cookies["sessionid"].value
    context = browser.new_context(base_url=live_server.url, color_scheme=request.param)
    context.add_cookies([{"name": "sessionid", "value": session, "url": live_server.url}])
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("width", [1440, 390])
def test_kv_store_page_fits(page: Page, width: int, request: pytest.FixtureRequest) -> None:
    page.set_viewport_size({"width": width, "height": 2000 if PICTURES else 900})
    page.goto("/kv")
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{request.node.callspec.id}.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for panel in page.locator(".ledger-panel, .tiles").all():
        box = panel.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    bar = page.locator(".kv-used").first.bounding_box()
    assert bar is not None
    assert bar["width"] > 20


def test_kv_store_page_refreshes_itself(page: Page) -> None:
    page.goto("/kv")
    assert "kv-3 is silent." in page.inner_text("h1")
    KvNode.objects.filter(name="kv-3").update(state="gone")
    page.get_by_role("heading", name="Corrupt copies on kv-3.").wait_for()


def test_operator_unpins_after_a_confirmation(page: Page, request: pytest.FixtureRequest) -> None:
    session = client_of(make_person("operator")).cookies["sessionid"].value
    page.context.clear_cookies()
    page.goto("/kv")
    page.context.add_cookies([{"name": "sessionid", "value": session, "url": page.url}])
    page.goto("/kv")
    page.get_by_role("link", name="Unpin c0ffee00 on kv-1").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("heading", name="Unpin c0ffee00 on kv-1?").wait_for()
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"unpin-{request.node.callspec.id}.png")
    dialog.get_by_label("Why").fill("room for others")
    dialog.get_by_role("button", name="Unpin").click()
    page.get_by_text("The node applies it").wait_for()
    page.get_by_text("Unpinning…").wait_for()
    if PICTURES:
        page.get_by_text("Unpinning…").scroll_into_view_if_needed()
        page.screenshot(path=Path(PICTURES) / f"unpinned-{request.node.callspec.id}.png")
