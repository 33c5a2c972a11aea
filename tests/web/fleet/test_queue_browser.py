"""The queue on the Fleet page in a real browser, with a fake fleet."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from bench.live.loopback_ports import free_port
from tests.web.axe import serious_violations
from tests.web.fleet.test_fleet_browser import COLOURS_AND_IMAGE, Console, column, signed_in, wait_for_column
from web.shell.frame import console_is_built

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not console_is_built(), reason="the console is not built")]
CHANGES_OF_HEIGHT = """() => new Promise((done) => {
  let changes = 0;
  const observer = new MutationObserver((records) => { changes += records.length; });
  observer.observe(document.getElementById('work-area'), { attributes: true });
  setTimeout(() => done(changes), 1000);
})"""
"""Counts how often the panel sets its own height within a second while nothing changes."""
ROWS = ("waiting", "dispatched", "rejected")


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    console = Console(tmp_path_factory.mktemp("queue"), free_port())
    console.start()
    yield console
    console.stop()


@pytest.fixture
def page(browser: Browser, console: Console, trouble: list[str]) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme="dark")
    yield signed_in(context, console, trouble)
    context.close()


def test_queue_charts_share_the_time_axis_of_the_heatmap(page: Page, trouble: list[str]) -> None:
    heat = page.locator("hw-heat").first.bounding_box()
    for row in ROWS:
        picture = page.locator(f"#queue-{row} hw-rates")
        colours, _ = picture.evaluate(COLOURS_AND_IMAGE)
        assert colours > 3, row
        box = picture.bounding_box()
        assert heat and box
        assert (box["x"], box["width"]) == (heat["x"], heat["width"])
    image = page.locator("#queue-dispatched hw-rates").evaluate(COLOURS_AND_IMAGE)[1]
    wait_for_column(page, column(page) + 1)
    assert page.locator("#queue-dispatched hw-rates").evaluate(COLOURS_AND_IMAGE)[1] != image
    assert page.evaluate("window.layoutShift") < 0.01
    assert serious_violations(page) == []
    assert trouble == []


def test_readout_shows_the_queue_at_the_pointer_and_at_the_keyboard_cursor(page: Page) -> None:
    page.hover("#queue-rejected hw-rates", position={"x": 500, "y": 10})
    expect(page.locator("#readout b")).to_have_text("Queue")
    expect(page.locator("#readout")).to_contain_text("Dispatched at once")
    page.mouse.move(5, 5)
    expect(page.locator("#readout b")).to_have_text("Now")
    page.locator("#queue-waiting hw-rates").focus()
    expect(page.locator("#readout b")).to_have_text("Queue")
    expect(page.locator("#readout")).to_have_attribute("aria-live", "polite")
    page.keyboard.press("ArrowLeft")
    newest = page.locator("#readout > span").first.inner_text()
    page.keyboard.press("Shift+ArrowLeft")
    expect(page.locator("#readout > span").first).not_to_have_text(newest)


def test_table_view_has_the_queue_with_its_rejection_reasons(page: Page, console: Console) -> None:
    page.goto(f"{console.url}/?view=table&pool=pool-0")
    page.click('#twin-tabs [data-view="queue"]')
    expect(page.locator("#twin thead")).to_contain_text("Rejected because")
    cells = page.locator("#twin tbody").inner_text()
    assert "SLO-infeasible" in cells
    assert "chat-70b" in cells
    assert serious_violations(page) == []


def test_folded_queue_shows_a_summary_and_has_an_address(page: Page, console: Console) -> None:
    page.click("#queue-fold")
    expect(page.locator("#queue-rows")).to_be_hidden()
    expect(page.locator("#queue-now")).to_contain_text("unbound requests queued")
    expect(page).to_have_url(re.compile(r"/\?queue=folded$"))
    page.reload()
    # The summary shows that the page's script has run, which the key press needs; hidden rows alone do not show it.
    expect(page.locator("#queue-now")).to_contain_text("unbound requests queued")
    expect(page.locator("#queue-rows")).to_be_hidden()
    page.locator("#queue-fold").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#queue-rows")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/\?queue=open$"))


def test_drawer_shows_the_queued_requests_of_its_engine_and_dispatch_reasons(page: Page, console: Console) -> None:
    page.goto(f"{console.url}/?engine=engine-e-04")
    measures = page.locator("#drawer-measures")
    expect(measures).to_contain_text("Queued for it")
    expect(measures).to_contain_text("oldest")
    expect(page.locator("#drawer-decisions .sub").first).to_have_text("shortest on time")
    assert serious_violations(page) == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1920, "light")])
def test_every_queue_row_is_drawn_on_narrow_and_wide_pages(
    browser: Browser, console: Console, trouble: list[str], width: int, scheme: str
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 1000},
        color_scheme=scheme,  # type: ignore[arg-type]
        reduced_motion="reduce",
        forced_colors="active" if width == 1920 else "none",
    )
    page = signed_in(context, console, trouble)
    for row in ROWS:
        picture = page.locator(f"#queue-{row} hw-rates")
        picture.scroll_into_view_if_needed()
        assert picture.evaluate(COLOURS_AND_IMAGE)[0] >= 3, row
        box = picture.bounding_box()
        assert box and box["height"] >= 30
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CHANGES_OF_HEIGHT) == 0
    context.close()
