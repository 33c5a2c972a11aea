"""The Automation page in a browser over the whole program: engines start, change roles, and stop; a pool is frozen."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser import sign_in, watched_page
from tests.program import Program, running_program
from tests.web.axe import serious_violations_in_both_themes

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.thorough]

PATIENCE_MS = 90_000
"""Time limit of starting or draining an engine on a busy machine."""


@pytest.fixture
def roles_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Run the program with two prefill and two decode engines in its demo pool."""
    with running_program(tmp_path_factory.mktemp("automation") / "var", "--prefill", "2", "--decode", "2") as running:
        yield running


def hold(page: Page, engines: int, prefill: int | None = None) -> None:
    """Override the size of the pool and of its prefill engines for 15 minutes."""
    page.get_by_role("link", name="Override", exact=True).click()
    page.get_by_label("Engines", exact=True).fill(str(engines))
    page.get_by_label("Prefill engines", exact=True).fill("" if prefill is None else str(prefill))
    page.get_by_label("For", exact=True).select_option("900")
    page.get_by_label("Why", exact=True).fill("from the browser")
    page.get_by_role("button", name="Fix engine count").click()
    expect(page.locator("#card-scaling .pill")).to_have_text("Overridden")


def action(page: Page, words: str) -> Locator:
    """Return the row of an action."""
    return page.locator(".automation-actions tr", has_text=re.compile(words)).first


def tile(page: Page, name: str) -> Locator:
    """Return the value of a tile."""
    return page.locator(".tile", has_text=name).locator("b")


def test_admin_scales_freezes_and_changes_roles_of_a_pool(
    browser: Browser, roles_program: Program, trouble: list[str]
) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme="dark")
    page = watched_page(context, trouble)
    sign_in(page, f"{roles_program.url}/automation/demo", "admin", roles_program.secrets["admin_password"])
    expect(tile(page, "Running")).to_have_text("4", timeout=PATIENCE_MS)

    hold(page, 5)
    expect(action(page, "Start")).to_be_visible(timeout=PATIENCE_MS)
    # One engine starts while another one changes its role, so that neither waits for the other here.
    # A start that takes too long on a busy machine is tried again, in the same role.
    role = roles_program.ask("select role from controlplane_engineaction where kind = 'start' order by id")[0][0]
    prefill = 2 if role == "prefill" else 1
    hold(page, 5, prefill=prefill)
    expect(action(page, "Start")).to_contain_text("serves", timeout=PATIENCE_MS)
    expect(action(page, "Change")).to_contain_text("serves as a decode engine", timeout=PATIENCE_MS)
    expect(tile(page, "Running")).to_have_text("5", timeout=PATIENCE_MS)
    assert roles_program.ask("select count(*) from controlplane_engine where role = 'prefill'") == [(prefill,)]

    hold(page, 4)
    # An engine drains meanwhile.
    _check_charts(page)
    assert serious_violations_in_both_themes(page) == []
    expect(action(page, "Drain and stop")).to_contain_text("Process stopped", timeout=PATIENCE_MS)
    expect(tile(page, "Running")).to_have_text("4", timeout=PATIENCE_MS)

    page.get_by_role("link", name="Freeze pool").click()
    page.get_by_label("Why", exact=True).fill("enough")
    page.get_by_role("button", name="Freeze Demo").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Frozen by admin")
    assert roles_program.ask("select count(*) from controlplane_auditevent where verb = 'pool.override'") == [(3,)]

    page.get_by_role("link", name="Unfreeze pool").click()
    expect(page.get_by_role("heading", level=2, name="Unfreeze Demo?")).to_be_visible()
    assert serious_violations_in_both_themes(page) == []
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator("hw-steps").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert trouble == []
    context.close()


def _check_charts(page: Page) -> None:
    """Check the charts by keyboard, at a plan's marker, and as a table."""
    # The script draws the charts, so it handles keys once they exist.
    expect(page.locator("hw-steps")).to_have_count(6)
    page.keyboard.press("1")
    expect(page.locator("#automation-range [aria-pressed=true]")).to_have_text("5 min")
    expect(page.locator("hw-steps")).to_have_count(6)
    expect(page.locator("hw-steps").first).to_have_attribute(
        "aria-label", re.compile(r"Engines: desired \d, running \d")
    )
    # On a busy machine the first marks may be those of automation, or leave the range meanwhile.
    page.locator(".mark-event[aria-label*='by admin: from the browser']").last.focus()
    expect(page.locator("#chart-readout")).to_contain_text("by admin: from the browser")
    page.locator("#chart-rows").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#chart-readout")).to_contain_text("ago")
    page.keyboard.press("t")
    expect(page.locator("#chart-twin thead")).to_contain_text("Imbalance f_im")
    expect(page.locator("#chart-twin tbody tr").nth(20)).to_be_visible()
    page.keyboard.press("t")
    assert "range=5m" in page.url
