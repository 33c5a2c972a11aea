"""The console of the whole program: decisions appear, cells change, and a killed engine is named within seconds."""

import contextlib
import os
import re
import signal
import time

import pytest
from playwright.sync_api import Page, expect

from tests.patience import PATIENCE_S
from tests.program import Program

pytestmark = [pytest.mark.browser, pytest.mark.processes]


def engine_port(program: Program, name: str) -> int:
    ((url,),) = program.ask("select url from controlplane_engine where name = ?", name)
    return int(url.rsplit(":", 1)[1])


def wait_for_column(page: Page, after: int) -> int:
    """Return the newest column once the page has drawn one after `after`. The page's policy forbids eval."""
    deadline = time.monotonic() + PATIENCE_S
    while (drawn := int(page.get_attribute("#fleet", "data-column") or 0)) <= after:
        assert time.monotonic() < deadline, f"no column came after {after}"
        page.wait_for_timeout(100)
    return drawn


def test_cells_change_as_traffic_is_routed(page: Page, trouble: list[str]) -> None:
    heat = page.locator("hw-heat canvas").first
    before = heat.evaluate("canvas => canvas.toDataURL()")
    wait_for_column(page, wait_for_column(page, 0) + 1)
    assert heat.evaluate("canvas => canvas.toDataURL()") != before
    expect(page.locator("#live-words")).to_have_text("Live")
    requests = page.locator(".tile", has_text=re.compile(r"^\s*Requests")).locator(".tile-value b")
    expect(requests).to_have_text(re.compile(r"^\d+(\.\d+)?$"))
    assert trouble == []


def test_killed_engine_is_shown_as_lost_with_its_reason_and_returns(page: Page, program: Program) -> None:
    port, verdict = engine_port(program, "e-05"), page.locator("#verdict")
    lost = re.compile("e-05 is lost.*(refused|reset|closed|broke off)", re.DOTALL)
    ends_at = time.monotonic() + PATIENCE_S
    # It starts again within a second, which a busy gateway need not notice: so it crashes until it does.
    while not lost.search(verdict.inner_text()):
        assert time.monotonic() < ends_at, verdict.inner_text()
        with contextlib.suppress(LookupError):
            os.kill(program.engine_pid(port), signal.SIGKILL)
        page.wait_for_timeout(200)
    # Where five of its streams broke off together, it stays out for 30 s before it is tried again.
    expect(verdict).not_to_contain_text("e-05 is lost")
