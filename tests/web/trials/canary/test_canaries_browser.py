"""The canary page in a browser: strict policy, axe in both themes, refreshed values, and promotion."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.fleet.engine_registration import register_engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.trials.canary.evaluation import plain
from controlplane.trials.canary.lifecycle import start_canary
from controlplane.trials.models.canary import Canary
from tests.browser import watched_page
from tests.controlplane.trials.canary.scene import ACTOR, live_version, version
from tests.planning.arm_data import slices
from tests.web.axe import serious_violations_in_both_themes
from tests.web.role_clients import client_of, make_person, make_pool
from tests.web.trials.canary.test_canaries import evaluated

pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip


@pytest.fixture
def pool(transactional_db: None) -> Pool:
    """Return a pool of two engines, for which publishing requires typing its name."""
    pool = make_pool()
    live_version(pool.policy)
    for number in (1, 2):
        register_engine(pool, f"e-{number}", f"http://10.0.0.{number}:8000", actor=program("test"))
    pool.refresh_from_db()
    return pool


@pytest.fixture
def page(browser: Browser, pool: Pool, live_server: LiveServer, trouble: list[str]) -> Iterator[Page]:
    """Yield a browser page that is signed in as an operator."""
    session = client_of(make_person("operator")).cookies["sessionid"].value
    context = browser.new_context(base_url=live_server.url, viewport={"width": 1280, "height": 1000})
    context.add_cookies([{"name": "sessionid", "value": session, "url": live_server.url}])
    yield watched_page(context, trouble)
    context.close()


def test_canary_page_refreshes_and_promotes_the_canary(page: Page, pool: Pool, trouble: list[str]) -> None:
    made = start_canary(version(pool.policy, "round_robin"), steps=(0.1,), actor=ACTOR)
    page.goto(f"/trials/canaries/{made.key}")
    expect(page.locator("#canary")).to_contain_text("Not evaluated yet")
    seen = [(1000.0 + 2 * number, entry) for number, entry in enumerate(slices(1, 20, 20, 6))]
    Canary.objects.filter(pk=made.pk).update(evaluation=plain(evaluated(seen)))
    expect(page.locator("#guardrails-title")).to_be_visible()
    page.locator("#cdf-twin summary").click()
    page.wait_for_timeout(2_500)
    expect(page.locator("#cdf-twin table")).to_be_visible()
    page.locator("#promote-menu summary").click()
    assert serious_violations_in_both_themes(page) == []
    page.fill("#promote-why", "urgent")
    page.fill("#promote-confirm", pool.slug)
    page.locator("#promote-menu button").click()
    expect(page.locator("h1")).to_have_text("v2 was promoted")
    assert trouble == []


def test_open_menu_survives_a_page_refresh(page: Page, pool: Pool) -> None:
    made = start_canary(version(pool.policy, "round_robin"), steps=(0.1, 0.5), actor=ACTOR)
    page.goto(f"/trials/canaries/{made.key}")
    page.locator("#promote-menu summary").click()
    page.fill("#promote-why", "urgent")
    opened = page.locator("#promote-menu").element_handle()
    seen = [(1000.0 + 2 * number, entry) for number, entry in enumerate(slices(1, 20, 20, 6))]
    Canary.objects.filter(pk=made.pk).update(evaluation=plain(evaluated(seen)))
    expect(page.locator("#guardrails-title")).to_be_visible()
    expect(page.locator("#promote-menu")).to_have_attribute("open", "")
    expect(page.locator("#promote-why")).to_have_value("urgent")
    expect(page.locator("#promote-why")).to_be_focused()
    assert opened.evaluate("menu => menu.isConnected")
