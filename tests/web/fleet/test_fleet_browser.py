"""The Fleet page in a real browser, with a fake fleet."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from bench.live.loopback_ports import free_port
from tests.browser import PATIENCE_MS, sign_in, watched_page
from tests.web.fake_console import NAME, PASSWORD
from web.shell.frame import console_is_built

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[3]
STARTED_S = 60
SHIFT_LIMIT = 0.01
LATE_SIZES = """
window.ResizeObserver = class extends ResizeObserver {
  constructor(notify) {
    super((entries) => entries[0].target.id === 'work-area' ? setTimeout(notify, 1000, entries) : notify(entries));
  }
};
"""
"""Delays resize events: a busy browser may report the panel's height after the first paint."""
COLOURS_AND_IMAGE = """(heat) => {
  const canvas = heat.querySelector('canvas');
  const copy = document.createElement('canvas');
  Object.assign(copy, { width: canvas.width, height: canvas.height });
  const pen = copy.getContext('2d', { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
  const colours = new Set();
  for (let at = 0; at < data.length; at += 4) colours.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
  return [colours.size, canvas.toDataURL()];
}"""

NAME_AND_VALUE = """(chart) => [document.getElementById(`${chart}-lines`).getAttribute('aria-label'),
  document.querySelector(`#${chart}-values .line-value b`).textContent]"""
"""A chart's accessible name, and the value that it shows."""


@dataclass
class Console:
    """A console process; `start` and `stop` may alternate on the same port and state."""

    state_dir: Path
    port: int
    # The fake fleet starts with one engine hot, one lost for good, and one about to drain.
    options: tuple[str, ...] = ("--engines", "8", "--hours", "0.5", "--shift", "-110", "--never-back")
    process: subprocess.Popen[bytes] | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.state_dir / "console.log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.web.fake_console", "--port", str(self.port), *self.options]
        environment = {**os.environ, "HEADWAY_STATE_DIR": str(self.state_dir)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + STARTED_S
        while not self._answers():
            if time.monotonic() > deadline or self.process.poll() is not None:
                self.stop()
                pytest.fail(f"the console did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/login", timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    if not console_is_built():
        reason = "the console is not built: run npm ci and npm run build"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    console = Console(tmp_path_factory.mktemp("console"), free_port())
    console.start()
    yield console
    console.stop()


@pytest.fixture
def page(browser: Browser, console: Console, trouble: list[str]) -> Iterator[Page]:
    """Open the Fleet page in a browser that signs in with the form."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme="dark")
    yield signed_in(context, console, trouble)
    context.close()


def signed_in(context: BrowserContext, console: Console, trouble: list[str], name: str = NAME) -> Page:
    """Return a page of the context that shows the fleet to this user."""
    page = watched_page(context, trouble)
    sign_in(page, console.url, name, PASSWORD)
    page.wait_for_selector("hw-heat[data-painted]")
    return page


def column(page: Page) -> int:
    return int(page.get_attribute("#fleet", "data-column") or 0)


def wait_for_column(page: Page, after: int) -> None:
    """Wait until the page has drawn a column after `after`. Polls, because the page's policy forbids eval."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while column(page) <= after:
        assert time.monotonic() < deadline, f"no column came after {after}"
        page.wait_for_timeout(100)


def test_cells_are_painted_and_change_without_a_layout_shift(page: Page, trouble: list[str]) -> None:
    heat = page.locator("hw-heat").first
    colours, image = heat.evaluate(COLOURS_AND_IMAGE)
    assert colours > 20
    wait_for_column(page, column(page) + 1)
    assert heat.evaluate(COLOURS_AND_IMAGE)[1] != image
    assert page.evaluate("window.layoutShift") < SHIFT_LIMIT
    expect(page.locator("#live-words")).to_have_text("Live")
    expect(page.locator("#verdict b")).to_have_text("e-07 is lost.")
    assert re.fullmatch(r"\d+\.\d", page.locator(".tile-value b").first.inner_text())
    for chart, title in (("cv", "Load CV: "), ("on-time", "Requests on time: ")):
        name, value = page.evaluate(NAME_AND_VALUE, chart)
        assert name.startswith(title)
        assert re.search(r"\d", value)
        assert f" {value}" in name
    assert trouble == []


def test_layout_does_not_shift_when_resize_events_are_late(
    browser: Browser, console: Console, trouble: list[str]
) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme="dark")
    context.add_init_script(LATE_SIZES)
    page = signed_in(context, console, trouble)
    wait_for_column(page, column(page) + 1)
    assert page.evaluate("window.layoutShift") < SHIFT_LIMIT
    context.close()


def test_keyboard_reaches_every_cell_and_opens_its_engine(page: Page, trouble: list[str]) -> None:
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#readout b")).to_contain_text("e-01")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#readout b")).to_contain_text("e-02")
    page.keyboard.press("Home")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.locator("#drawer-name")).to_have_text("e-02")
    assert page.url.endswith("/?engine=engine-e-02")
    page.keyboard.press("j")
    expect(page.locator("#drawer-name")).to_have_text("e-03")
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    assert trouble == []


def test_link_opens_the_engine_that_it_names(page: Page, console: Console) -> None:
    page.goto(f"{console.url}/?engine=engine-e-07")
    expect(page.locator("#drawer-name")).to_have_text("e-07")
    expect(page.locator("#drawer-pill")).to_contain_text("Lost for")
    expect(page.locator("#drawer-why-text")).to_contain_text("3 connects rejected")


def test_table_view_has_a_row_per_engine_and_pause_freezes_the_view(page: Page) -> None:
    page.keyboard.press("t")
    expect(page.locator("#twin tbody tr")).to_have_count(8)
    expect(page.locator("#picture-grid")).to_be_hidden()
    expect(page.locator("#twin tbody td:nth-child(2)").first).to_have_text("serving")
    expect(page.locator("#twin tbody td:nth-child(7)").first).to_have_text(re.compile(r"\d+"))
    page.keyboard.press("t")
    expect(page.locator("#picture-grid")).to_be_visible()
    page.keyboard.press("Space")
    expect(page.locator("#live-words")).to_contain_text("Paused")
    held = column(page)
    assert re.search(r"end=\d+$", page.url)
    page.wait_for_timeout(1500)
    assert column(page) == held
    page.keyboard.press("Space")
    expect(page.locator("#live-words")).to_have_text("Live")
    wait_for_column(page, held)


def test_scope_menu_shows_one_pool(page: Page) -> None:
    page.click("#scope-menu > summary")
    page.click("#scope-choices >> text=agents-32b")
    expect(page.locator("hw-heat")).to_have_count(1)
    expect(page.locator(".row-name")).to_have_count(3)
    assert page.url.endswith("/?pool=pool-1")


def test_theme_is_stored_and_repaints_the_charts(page: Page) -> None:
    heat = page.locator("hw-heat").first
    before = heat.evaluate(COLOURS_AND_IMAGE)[1]
    page.click("#theme-button")
    page.wait_for_timeout(200)
    assert heat.evaluate(COLOURS_AND_IMAGE)[1] != before
    page.reload()
    assert page.get_attribute("html", "data-theme") == "light"


def test_view_reconnects_after_a_server_restart(page: Page, console: Console) -> None:
    held = column(page)
    console.stop()
    expect(page.locator("#live-words")).to_contain_text("Reconnecting")
    console.start()
    expect(page.locator("#live-words")).to_have_text("Live", timeout=PATIENCE_MS)
    wait_for_column(page, held)


def test_signing_out_requires_a_new_login(page: Page, console: Console) -> None:
    page.click("#person-menu > summary")
    page.click("text=Sign out")
    page.wait_for_url(f"{console.url}/login")
    page.goto(console.url)
    assert "/login?next=/" in page.url
