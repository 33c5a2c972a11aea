"""Addresses of the Fleet page that name an engine, a time, or a decision, which may no longer exist."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from bench.live.loopback_ports import free_port
from tests.web.fleet.test_fleet_browser import Console, page

__all__ = ["page"]

pytestmark = pytest.mark.browser
REMOVED_AGO_S = 60
PAST = re.compile(r"([\d.]+)\s%\sof\s[\d,]+ requests on time")


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Run a console whose eighth engine was removed a minute ago."""
    options = ("--engines", "8", "--hours", "0.3", "--shift", "-110", "--never-back")
    options += ("--removed-ago", str(REMOVED_AGO_S))
    console = Console(tmp_path_factory.mktemp("console"), free_port(), options)
    console.start()
    yield console
    console.stop()


def test_address_of_an_unknown_engine_shows_a_message_and_a_link_back(
    page: Page, console: Console, trouble: list[str]
) -> None:
    page.goto(f"{console.url}/?engine=nope&range=1h")
    expect(page.locator("#drawer-missing")).to_contain_text("Engine nope is not in this fleet.")
    expect(page.locator("#drawer-measures")).to_be_hidden()
    page.click("#drawer-missing-back")
    expect(page.locator("#drawer")).to_be_hidden()
    assert page.url.endswith("/?range=1h")
    page.locator(".row-name").first.click()
    expect(page.locator("#drawer-missing")).to_be_hidden()
    expect(page.locator("#drawer-measures")).to_be_visible()
    assert trouble == []


def test_open_decision_has_an_address_and_is_closed_by_the_back_button(
    page: Page, console: Console, trouble: list[str]
) -> None:
    page.goto(f"{console.url}/?engine=engine-e-02")
    page.locator("#drawer-decisions tbody tr").nth(2).click()
    expect(page.locator("#drawer-story-title")).to_contain_text("Sent to e-02:")
    (name,) = re.findall(r"\?engine=engine-e-02&decision=([\w-]+)$", page.url)
    facts = (page.locator("#drawer-story-facts").text_content() or "?").partition(" · ")[2]
    links = [page.locator(f"#drawer-story-{item}").bounding_box() for item in ("page", "json")]
    assert all(links)
    assert links[1]["x"] - links[0]["x"] - links[0]["width"] >= 8
    page.reload()
    # The fake fleet generates its decisions again for every answer: only their times differ.
    expect(page.locator("#drawer-story-facts")).to_contain_text(facts)
    page.go_back()
    expect(page.locator("#drawer-story")).to_be_hidden()
    expect(page.locator("#drawer-name")).to_have_text("e-02")
    assert page.url.endswith("/?engine=engine-e-02")
    page.go_forward()
    expect(page.locator("#drawer-story-page")).to_have_attribute("href", f"/requests/{name}")
    expect(page.locator("#drawer-story")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#drawer-story")).to_be_hidden()
    expect(page.locator("#drawer")).to_be_visible()
    # A page that was opened by a link has no history to go back to.
    page.goto(f"{console.url}/?engine=engine-e-02&decision=gone")
    expect(page.locator("#drawer-story-why")).to_contain_text("Neither the gateways nor the request log")
    page.click("#drawer-story-close")
    expect(page.locator("#drawer-story")).to_be_hidden()
    assert page.url.endswith("/?engine=engine-e-02")
    assert [item for item in trouble if "404" not in item] == []


def test_removed_engine_stays_in_the_chart_and_its_event_names_it(page: Page, trouble: list[str]) -> None:
    row = page.locator(".row-name.removed")
    expect(row).to_have_text("e-08")
    expect(page.locator("#readout")).to_contain_text("of 7")
    page.get_by_role("button", name=re.compile("e-08 was removed from the fleet")).click()
    expect(page.locator("#drawer-name")).to_have_text("e-08")
    expect(page.locator("#drawer-pill")).to_have_text("Removed")
    expect(page.locator("#drawer-events")).to_contain_text("e-08 was removed from the fleet")
    expect(page.locator("#drawer-decisions-none")).to_contain_text("was removed")
    expect(page.locator("#drawer-verbs button")).to_have_count(0)
    page.keyboard.press("3")
    expect(page.locator("#fleet")).to_have_attribute("data-range", "24h")
    expect(row).to_have_text("e-08")
    assert [item for item in trouble if "404" not in item] == []


def test_past_view_shows_the_engines_of_that_time(page: Page, console: Console) -> None:
    page.goto(f"{console.url}/?end={int(time.time()) - REMOVED_AGO_S - 300}")
    expect(page.locator(".row-name.removed")).to_have_text("e-08")
    expect(page.locator(".row-name")).to_have_count(8)
    expect(page.locator("#readout")).to_contain_text("of 8")
    page.locator(".row-name.removed").click()
    expect(page.locator("#drawer-pill")).to_have_text("Serving, removed since")


def test_tiles_of_a_past_view_match_its_verdict(page: Page, console: Console) -> None:
    page.goto(f"{console.url}/?end={int(time.time()) - 20}")
    expect(page.locator("#verdict p")).to_contain_text("requests on time")
    expect(page.locator("#fleet")).to_have_attribute("aria-busy", "false")
    (share,) = PAST.findall(page.locator("#verdict p").text_content() or "")
    on_time, queue = page.locator(".tile").first, page.locator(".tile").last
    expect(on_time.locator(".tile-value b")).to_have_text(share)
    expect(on_time.locator(".tile-window")).to_have_text("5\u202fmin")
    expect(queue.locator(".tile-window")).to_contain_text("at ")
    expect(queue.locator(".tile-note")).not_to_have_text(re.compile(r"^oldest 0\s"))
    expect(page.locator("#status-live")).to_have_text("Past")
    expect(page.locator("#status-age")).to_have_text("")


def test_time_without_history_shows_a_message_instead_of_values(page: Page, console: Console) -> None:
    for come in (lambda: page.goto(f"{console.url}/?end=999"), lambda: page.evaluate("history.back()")):
        come()
        expect(page.locator("#verdict b")).to_have_text("No history.")
        expect(page.locator("#verdict p")).to_contain_text("End must be within the last 30 days")
        expect(page.locator("#empty")).to_contain_text("Press Space for live")
        expect(page.locator("#picture-grid")).to_be_hidden()
        assert not (page.locator("#readout").text_content() or "").strip()
        expect(page.locator("#live-words")).to_have_text("No history")
        assert page.locator(".tile-value b").all_text_contents() == ["—"] * 6
        page.keyboard.press("Space")
        expect(page.locator("#live-words")).to_have_text("Live")
        expect(page.locator("#picture-grid")).to_be_visible()
        page.evaluate("history.replaceState(null, '', '/?end=999'); history.pushState(null, '', '/')")


def test_drawer_fits_a_narrow_page_and_can_be_closed(page: Page, console: Console) -> None:
    page.emulate_media(reduced_motion="reduce")
    for width, query in ((390, "?engine=nope"), (390, "?engine=engine-e-02"), (768, "?engine=engine-e-02")):
        page.set_viewport_size({"width": width, "height": 844})
        page.goto(f"{console.url}/{query}")
        expect(page.locator("#drawer-close")).to_be_in_viewport(ratio=1)
        box = page.locator("#drawer").bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        page.click("#drawer-close")
        expect(page.locator("#drawer")).to_be_hidden()
