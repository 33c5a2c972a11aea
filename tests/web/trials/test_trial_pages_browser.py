"""Trials in a browser: strict policy, axe, and a result that appears without a reload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import override_settings
from playwright.sync_api import Browser, Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.fleet.models.pool import Pool
from controlplane.trials.whatif import job, runs
from simulator.runs.run_task import do_task
from tests.browser import watched_page
from tests.controlplane.trials.whatif.installation import keep, live_and_draft, recorded
from tests.web.axe import serious_violations_in_both_themes
from tests.web.role_clients import client_of, make_person, make_pool

pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip


@pytest.fixture
def pool(transactional_db: None, tmp_path: Path) -> Iterator[Pool]:
    """Yield a pool with a draft and a recording."""
    with override_settings(STATE_DIR=tmp_path):
        pool = make_pool()
        live_and_draft(pool)
        keep(pool, recorded(), "a busy quarter")
        yield pool


@pytest.fixture
def page(browser: Browser, pool: Pool, live_server: LiveServer, trouble: list[str]) -> Iterator[Page]:
    """Yield a browser page that is signed in as an operator."""
    session = client_of(make_person("operator")).cookies["sessionid"].value
    context = browser.new_context(base_url=live_server.url, viewport={"width": 1440, "height": 1000})
    context.add_cookies([{"name": "sessionid", "value": session, "url": live_server.url}])
    yield watched_page(context, trouble)
    context.close()


def test_what_if_evaluates_a_draft_on_recorded_traffic(
    page: Page, pool: Pool, trouble: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "run_in_child", lambda task, **_: do_task(task))
    page.goto(f"/policies/{pool.policy.slug}?draft=2")
    page.keyboard.press("w")
    page.get_by_label("Traffic").select_option(label="a busy quarter (120 requests)")
    assert serious_violations_in_both_themes(page) == []
    page.get_by_label("Seeds").select_option("1")
    page.get_by_role("button", name="Run what-if").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Waiting for a worker")
    job.whatif()
    expect(page.get_by_role("heading", name="Figures")).to_be_visible()
    expect(page.get_by_text("Kept", exact=True)).to_be_visible()
    expect(page.get_by_role("img", name="Times to first token")).to_be_visible()
    assert serious_violations_in_both_themes(page) == []
    page.set_viewport_size({"width": 400, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1440, "height": 1000})
    page.goto("/trials/recordings?recording=1")
    assert serious_violations_in_both_themes(page) == []
    assert trouble == []
