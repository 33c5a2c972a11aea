"""Page layout that only a browser can measure: gaps, borders, and the first screen on a phone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page
from pytest_django.live_server_helper import LiveServer

from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.job_run import JobRun
from controlplane.trials.canary.evaluation import plain
from controlplane.trials.canary.lifecycle import start_canary
from controlplane.trials.models.canary import Canary
from tests.controlplane.trials.canary.scene import ACTOR, live_version, version
from tests.planning.arm_data import slices
from tests.web.role_clients import client_of, make_person, make_pool
from tests.web.trials.canary.test_canaries import evaluated

pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip
WIDE, PHONE = 1440, 390


@pytest.fixture
def pool(transactional_db: None) -> Pool:
    pool = make_pool()
    live_version(pool.policy)
    return pool


@pytest.fixture
def page(browser: Browser, pool: Pool, live_server: LiveServer) -> Iterator[Page]:
    """Yield a browser page that is signed in as a viewer; themes differ in colors only."""
    session = client_of(make_person("viewer")).cookies["sessionid"].value
    context = browser.new_context(base_url=live_server.url, color_scheme="dark")
    context.add_cookies([{"name": "sessionid", "value": session, "url": live_server.url}])
    yield context.new_page()
    context.close()


def show(page: Page, path: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(path)


def box(page: Page, selector: str) -> dict[str, float]:
    bounds = page.locator(selector).first.bounding_box()
    assert bounds is not None
    return dict(bounds)


def test_message_page_has_a_gap_below_its_heading(page: Page) -> None:
    for path in ("/policies/nope", "/trials/canaries/nope", "/trials/whatif/99", "/trials?new"):
        page.goto(path)
        for width in (WIDE, PHONE):
            page.set_viewport_size({"width": width, "height": 900})
            heading = box(page, "h1")
            assert box(page, "h1 + .panel")["y"] - heading["y"] - heading["height"] >= 10, (path, width)


def test_filter_beside_the_jobs_heading_has_no_bottom_border(page: Page) -> None:
    JobRun.objects.create(job="scaling", shard=0, state="done", started_at=timezone.now(), finished_at=timezone.now())
    show(page, "/jobs", WIDE)
    form = page.locator(".ledger-verbs .ledger-filter")
    assert form.evaluate("form => getComputedStyle(form).borderBottomWidth") == "0px"
    assert box(page, ".ledger-filter .button")["y"] == box(page, "[data-failed]")["y"]


def test_read_only_note_fits_a_phone(page: Page) -> None:
    for path in ("/trials/recordings", "/trials", "/policies/chat-policy"):
        show(page, path, PHONE)
        note = box(page, ".read-only")
        assert note["x"] >= 0, path
        assert note["x"] + note["width"] <= PHONE, path


def test_canary_guardrails_show_interval_and_verdict_at_every_width(page: Page, pool: Pool) -> None:
    made = start_canary(version(pool.policy, "round_robin"), steps=(0.1,), actor=ACTOR)
    seen = [(1000.0 + 2 * number, entry) for number, entry in enumerate(slices(1, 20, 20, 6, slower=1.2))]
    Canary.objects.filter(pk=made.pk).update(evaluation=plain(evaluated(seen)))
    for width in (WIDE, PHONE):
        show(page, f"/trials/canaries/{made.key}", width)
        drawn, verdict = box(page, ".canary-interval"), box(page, ".canary-guardrails td:last-child .state-cell")
        assert drawn["width"] >= 90
        assert verdict["x"] + verdict["width"] <= width
        edge = drawn["x"] + drawn["width"]
        for mark in (".canary-doubt", ".canary-point", ".canary-threshold"):
            mark_box = box(page, mark)
            assert drawn["x"] - 1 <= mark_box["x"] <= mark_box["x"] + mark_box["width"] <= edge + 1
