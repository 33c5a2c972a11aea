"""An engine is drained from its drawer and returned under traffic, while history is stored."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Page, expect

from tests.browser import PATIENCE_MS
from tests.program import Program

pytestmark = [pytest.mark.browser, pytest.mark.processes]


def newest_decision(page: Page) -> str:
    return page.locator("#drawer-decisions tbody tr").first.inner_text().split()[0]


@pytest.mark.thorough
def test_engine_is_drained_and_returned_from_its_drawer(page: Page, program: Program, trouble: list[str]) -> None:
    page.locator(".row-name", has_text="e-02").click()
    expect(page.locator("#drawer-decisions tbody tr")).not_to_have_count(0)
    page.click("#drawer-verbs >> text=Drain")
    page.fill("#verb-why", "kernel update")
    page.click("#verb-send")
    expect(page.locator("#drawer-pill")).to_have_text(re.compile("Drain"), timeout=PATIENCE_MS)
    expect(page.locator("#drawer-pill")).to_have_text("Drained", timeout=3 * PATIENCE_MS)
    expect(page.locator("#drawer-events")).to_contain_text("e-02 is draining")
    expect(page.locator(".mark-event[aria-label*='e-02 is draining']")).to_have_count(1)
    held = newest_decision(page)
    page.wait_for_timeout(5_000)
    assert newest_decision(page) == held
    page.click("#drawer-verbs >> text=Return to service")
    page.click("#verb-send")
    expect(page.locator("#drawer-pill")).to_have_text(re.compile("Serving|Hot"), timeout=PATIENCE_MS)
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while newest_decision(page) == held:
        assert time.monotonic() < deadline, "the engine got no new request after its return"
        page.wait_for_timeout(250)
    # The program adds its own event where a busy machine had it eject the engine before.
    events = program.ask(
        "select verb, why from controlplane_auditevent where object_id = 'e-02' and via = 'console' order by id"
    )
    assert events[-2:] == [("engine.drain", "kernel update"), ("engine.ready", "")]
    assert trouble == []


@pytest.mark.thorough
def test_fleet_start_is_one_marker_and_its_history_is_stored(page: Page, program: Program) -> None:
    deadline = time.monotonic() + 2 * PATIENCE_MS / 1000
    while not program.ask("select 1 from controlplane_rollup limit 1"):
        assert time.monotonic() < deadline, "the roll-up job stored nothing"
        page.wait_for_timeout(500)
    page.goto(f"{program.url}/?range=1h")
    page.wait_for_selector("hw-heat[data-painted]")
    labels = [str(item.get_attribute("aria-label")) for item in page.locator(".mark-event").all()]
    starts = [line for label in labels for line in label.split("\n") if "engines start" in line]
    assert len(starts) == 1
    doubles = 'select count(*) from controlplane_rollup group by seconds, "index", pool having count(*) > 1'
    assert program.ask(doubles) == []
