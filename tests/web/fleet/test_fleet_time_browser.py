"""Past views, tables, actions, and large fleets on the Fleet page, in a real browser."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from bench.live.loopback_ports import free_port
from tests.web.axe import SOURCE, serious_violations_in_both_themes
from tests.web.fake_console import VIEWER
from tests.web.fleet.test_fleet_browser import Console, column, console, page, signed_in

__all__ = ["console", "page"]

pytestmark = pytest.mark.browser
TEXTS = "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
FRAME_MS = 4.0
"""Time budget of a frame of 256 rows × 600 columns."""


def fleet(page: Page, name: str) -> str:
    """Return a data attribute of the page's root element."""
    return page.get_attribute("#fleet", f"data-{name}") or ""


def show(page: Page, range_name: str) -> None:
    """Choose a range by its key and wait until it is drawn."""
    page.keyboard.press({"5m": "1", "1h": "2", "24h": "3"}[range_name])
    expect(page.locator("#fleet")).to_have_attribute("data-range", range_name)
    expect(page.locator("#fleet")).to_have_attribute("aria-busy", "false")


def test_longer_ranges_show_stored_history_and_stay_live(page: Page, trouble: list[str]) -> None:
    show(page, "1h")
    expect(page.locator("#hour-name")).to_have_text("Last day")
    expect(page.locator("#work-sub")).to_contain_text("peak per 10")
    expect(page.locator("#live-words")).to_have_text("Live")
    assert page.url.endswith("/?range=1h")
    expect(page.locator("#lane")).to_contain_text("recorded since")
    show(page, "24h")
    expect(page.locator("#hour-name")).to_have_text("Last week")
    page.reload()
    page.wait_for_selector("hw-heat[data-painted]")
    expect(page.locator("#range-control [data-range='24h']")).to_have_attribute("aria-pressed", "true")
    show(page, "5m")
    assert page.url.endswith("/")
    assert trouble == []


def test_arrow_keys_on_the_strip_show_the_past_and_space_returns_to_live(
    page: Page, console: Console, trouble: list[str]
) -> None:
    # Keys are pressed faster than charts load: each step continues from the time that the last one requested.
    page.locator("#hour").focus()
    for _ in range(8):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#live-control")).to_have_attribute("data-state", "past")
    expect(page.locator("#live-words")).to_contain_text("Past, ")
    stretch = re.compile(r"\d+ [A-Z][a-z]+ \d\d:\d\d:\d\d to \d\d:\d\d:\d\d UTC\.")
    expect(page.locator("#verdict b")).to_have_text(stretch)
    expect(page.locator("#verdict p")).to_contain_text("requests on time")
    expect(page.locator("#fleet")).to_have_attribute("aria-busy", "false")
    (end,) = re.findall(r"\?end=(\d+)$", page.url)
    at = column(page)
    page.reload()
    page.wait_for_selector("hw-heat[data-painted]")
    expect(page.locator("#live-words")).to_contain_text("Past, ")
    assert (column(page), f"end={end}" in page.url) == (at, True)
    page.keyboard.press("Space")
    expect(page.locator("#live-words")).to_have_text("Live")
    assert page.url.endswith("/")
    assert trouble == []


@pytest.mark.thorough
def test_dragging_the_strip_shows_the_past(page: Page, trouble: list[str]) -> None:
    box = page.locator("#hour").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] - 5, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, middle, steps=5)
    page.mouse.up()
    expect(page.locator("#live-control")).to_have_attribute("data-state", "past")
    (end,) = re.findall(r"\?end=(\d+)$", page.url)
    assert 700 < time.time() - int(end) < 1300
    expect(page.locator("#fleet")).to_have_attribute("aria-busy", "false")
    page.locator("#hour").press("End")
    expect(page.locator("#live-words")).to_have_text("Live")
    assert trouble == []


@pytest.mark.thorough
def test_end_of_the_range_has_a_resolution_of_a_second(page: Page) -> None:
    # Not a whole minute, because the field would omit the seconds of one.
    moment = int(time.time()) // 60 * 60 - 567
    page.click("#range-menu > summary")
    page.fill("#range-end", time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)))
    page.click("#range-form button")
    expect(page.locator("#live-control")).to_have_attribute("data-state", "past")
    expect(page).to_have_url(re.compile(rf"/\?end={moment}$"))
    expect(page.locator("#range-clock")).to_contain_text(time.strftime("%H:%M", time.gmtime(moment - 300)))


@pytest.mark.thorough
def test_every_chart_has_a_table(page: Page, trouble: list[str]) -> None:
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("t")
    expect(page.locator("#twin caption")).to_contain_text("Column of")
    expect(page.locator("#twin tbody tr")).to_have_count(8)
    page.keyboard.press("Escape")
    expect(page.locator("#twin caption")).to_contain_text("Now, ")
    show(page, "1h")
    for view, heads in (("lines", "Load CV"), ("strip", "peak wait"), ("moments", "What happened")):
        page.click(f"#twin-tabs [data-view={view}]")
        expect(page.locator("#twin thead")).to_contain_text(heads)
    expect(page.locator("#twin tbody")).to_contain_text(re.compile(r"e-0\d is (hot|lost)|policy"))
    assert trouble == []


@pytest.mark.thorough
def test_search_opens_an_engine(page: Page) -> None:
    page.keyboard.press("/")
    expect(page.locator("#palette-field")).to_be_focused()
    page.keyboard.type("e-0")
    expect(page.locator("#palette-list [data-engine]").first).to_contain_text("e-01")
    expect(page.locator("#palette-list [aria-selected=true]")).to_contain_text("e-01")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer-name")).to_have_text("e-02")


@pytest.mark.thorough
def test_focused_marker_shows_its_event_in_the_readout(page: Page) -> None:
    show(page, "1h")
    page.locator(".mark-event").first.focus()
    expect(page.locator("#readout")).to_contain_text(re.compile(r"is (hot|lost)|live"))


def desired_state(console: Console, name: str) -> str:
    with sqlite3.connect(f"file:{console.state_dir}/headway.sqlite3?mode=ro", uri=True) as database:
        return str(
            database.execute("select desired_state from controlplane_engine where name = ?", (name,)).fetchone()[0]
        )


def test_operator_drains_an_engine_from_the_drawer_and_returns_it(
    page: Page, console: Console, trouble: list[str]
) -> None:
    page.goto(f"{console.url}/?engine=engine-e-01")
    page.click("#drawer-verbs >> text=Drain")
    expect(page.locator("#verb-title")).to_have_text("Drain e-01?")
    expect(page.locator("#verb-effects")).to_contain_text("Undo at any time: Return to service")
    page.fill("#verb-why", "kernel update")
    page.click("#verb-send")
    expect(page.locator("#toasts")).to_contain_text("e-01 is draining")
    expect(page.locator("#verb-dialog")).to_be_hidden()
    assert desired_state(console, "e-01") == "draining"
    page.click("#drawer-verbs >> text=Return to service")
    page.keyboard.press("Escape")
    assert desired_state(console, "e-01") == "draining"
    page.click("#drawer-verbs >> text=Return to service")
    page.click("#verb-send")
    expect(page.locator("#drawer-verbs >> text=Drain")).to_be_visible()
    assert desired_state(console, "e-01") == "ready"
    assert trouble == []


def test_drain_dialog_has_the_counts_of_the_drawer(page: Page, console: Console) -> None:
    page.goto(f"{console.url}/?engine=engine-e-06")
    page.click("#drawer-verbs >> text=Drain")
    read = """() => [[...document.querySelectorAll('#drawer-measures .measure-value')].slice(1, 3).map(
      (cell) => parseInt(cell.dataset.text, 10)), document.querySelectorAll('#verb-effects li')[1].textContent]"""
    seen, until = set(), time.monotonic() + 30.0
    # A busy engine can have the same counts for seconds.
    while len(seen) < 2 and time.monotonic() < until:
        (running, bound), effect = page.evaluate(read)
        seen.add((running, bound))
        assert [int(item) for item in re.findall(r"\d+", effect)] == [item for item in (running, bound) if item]
        page.wait_for_timeout(500)
    assert len(seen) > 1


@pytest.mark.thorough
def test_viewer_has_no_actions(browser: Browser, console: Console, trouble: list[str]) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = signed_in(context, console, trouble, VIEWER)
    page.goto(f"{console.url}/?engine=engine-e-01")
    expect(page.locator("#drawer-decisions tbody tr")).not_to_have_count(0)
    expect(page.locator("#drawer-verbs button")).to_have_count(0)
    context.close()


def test_decision_opens_with_its_candidates(page: Page, console: Console) -> None:
    page.goto(f"{console.url}/?engine=engine-e-02")
    page.locator("#drawer-decisions tbody tr").nth(2).click()
    expect(page.locator("#drawer-story-title")).to_contain_text("Sent to e-02:")
    expect(page.locator("#drawer-story-table tbody tr").first).to_contain_text("e-02")
    page.click("#drawer-story-close")
    expect(page.locator("#drawer-story")).to_be_hidden()


def test_fleet_page_has_no_serious_axe_violation(page: Page, console: Console) -> None:
    if not SOURCE.is_file():
        pytest.skip("axe-core is not installed: run npm ci")
    assert serious_violations_in_both_themes(page) == []
    for query, part in (("view=table", ""), ("range=1h", ""), ("engine=engine-e-02", "#drawer")):
        page.goto(f"{console.url}/?{query}")
        page.wait_for_selector("#fleet[data-column]")
        expect(page.locator("#fleet")).to_have_attribute("aria-busy", "false")
        if part:
            expect(page.locator("#drawer-decisions-none, #drawer-decisions tbody tr").first).to_be_attached()
        assert serious_violations_in_both_themes(page, part) == [], query


@pytest.mark.thorough
def test_narrow_page_is_a_list_without_horizontal_scrolling(
    browser: Browser, console: Console, trouble: list[str]
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = signed_in(context, console, trouble)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    row = page.locator(".row-name").first.bounding_box()
    assert row is not None
    assert row["height"] >= 24
    page.locator(".row-name").nth(1).click()
    expect(page.locator("#drawer-name")).to_have_text("e-02")
    assert trouble == []
    context.close()


@pytest.mark.thorough
def test_reduced_motion_repaints_once_a_second(browser: Browser, console: Console, trouble: list[str]) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, reduced_motion="reduce")
    page = signed_in(context, console, trouble)
    page.wait_for_timeout(1500)
    heat = page.locator("hw-heat").first
    before = int(heat.get_attribute("data-painted") or 0)
    page.wait_for_timeout(5000)
    assert 1 <= int(heat.get_attribute("data-painted") or 0) - before <= 7
    context.close()


@pytest.mark.thorough
def test_forced_colors_keep_the_outlines_of_charts(browser: Browser, console: Console, trouble: list[str]) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, forced_colors="active")
    page = signed_in(context, console, trouble)
    assert page.locator("hw-heat").first.evaluate("(heat) => getComputedStyle(heat).outlineStyle") == "solid"
    assert trouble == []
    context.close()


@pytest.mark.thorough
def test_history_survives_a_restart_and_the_downtime_is_a_gap(page: Page, console: Console) -> None:
    # Another process must show the stored columns with the same values. The table of one pool has a row for every
    # second column, so that a pause of more than two columns cannot fall between the rows.
    one_pool = f"{console.url}/?range=1h&view=table&pool=pool-0"
    page.goto(one_pool)
    page.click("#twin-tabs [data-view=lines]")
    rows = page.locator("#twin tbody tr")
    expect(rows.nth(20)).to_be_visible()
    before = {at: values for at, _, *values in rows.evaluate_all(TEXTS) if set(values) != {"—"}}
    console.stop()
    time.sleep(30)
    console.options = ("--engines", "8", "--young", "1", "--shift", "600", "--quiet")
    console.start()
    page.goto(one_pool)
    page.wait_for_selector("#twin tbody tr")
    page.click("#twin-tabs [data-view=lines]")
    expect(rows.nth(20)).to_be_visible()
    after = {at: values for at, _, *values in rows.evaluate_all(TEXTS)}
    # Stored columns are unchanged; the last columns before the stop were not stored, and the pause has no values.
    shared = [key for key in list(before)[10:] if key in after]
    assert len(shared) > 20
    assert [key for key in shared if after[key] != before[key]] == []
    assert any(set(values) == {"—"} for values in list(after.values())[:10])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    options = ("--engines", "256", "--hours", "0", "--quiet")
    console = Console(tmp_path_factory.mktemp("large"), free_port(), options)
    console.start()
    yield console
    console.stop()


@pytest.mark.alone
def test_frame_of_256_rows_and_a_day_of_columns_meets_its_time_budget(
    browser: Browser, large: Console, trouble: list[str]
) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = signed_in(context, large, trouble)
    page.goto(f"{large.url}/?range=24h")
    page.wait_for_selector("hw-heat[data-painted]")
    assert page.locator(".row-name").count() == 256
    times = []
    for _ in range(40):
        page.wait_for_timeout(500)
        times.append(float(fleet(page, "frame-ms") or 99))
        # On a busy machine, the fastest of several frames shows what the page needs.
        if min(times) <= FRAME_MS and len(times) > 5:
            break
    assert min(times) <= FRAME_MS, times
    context.close()


@pytest.mark.thorough
def test_large_fleet_folds_into_bands_and_unfolds(browser: Browser, large: Console, trouble: list[str]) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = signed_in(context, large, trouble)
    page.locator(".pool-fold").first.click()
    expect(page.locator(".row-band")).to_have_count(5)
    page.locator(".row-band").first.click()
    expect(page.locator(".pool").first.locator(".row-name")).to_have_count(29)
    assert "fold=pool-0%2Cpool-0.0" in page.url
    page.locator(".row-band").first.focus()
    page.keyboard.press("ArrowUp")
    expect(page.locator("#readout b")).to_be_visible()
    assert trouble == []
    context.close()
