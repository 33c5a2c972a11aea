"""A headless Chromium whose pages record everything that the browser complains about."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Cookie, Page, expect, sync_playwright

from tests.kept import Kept
from tests.patience import PATIENCE_S

PATIENCE_MS = PATIENCE_S * 1000
WATCH_TROUBLE = """
addEventListener('securitypolicyviolation', (event) => {
  console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`);
});
window.layoutShift = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.layoutShift += entry.value;
}).observe({ type: 'layout-shift', buffered: true });
"""
_REJECTED = re.compile(r"status of 4(09|12|22)")
"""What a browser notes about a form that was rejected; the page then says why."""


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Return the path of a Chromium: env CHROMIUM, the system's, or Playwright's. Skip if none; fail if CI=true."""
    chromium = next((path for path in _candidates() if path and Path(path).is_file()), None)
    if chromium is None:
        reason = "no Chromium: install the chromium package, run playwright install chromium, or set CHROMIUM"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return chromium


kept_browser: Kept[Browser] = Kept(lambda item: item.get_closest_marker("browser") is not None)
"""Ends before an asynchronous test, which needs the event loop that Playwright keeps."""


@contextmanager
def running_browser(chromium_path: str) -> Iterator[Browser]:
    arguments = ["--no-sandbox", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    """A browser without any context, kept for the next module if its tests use one, too."""
    browser = kept_browser.get(lambda: running_browser(chromium_path))
    expect.set_options(timeout=PATIENCE_MS)
    yield browser
    expect.set_options(timeout=None)
    for context in browser.contexts:
        context.close()


@pytest.fixture
def trouble() -> list[str]:
    """Return the browser's complaints: errors, warnings, and violations of the page's policy."""
    return []


def watched_page(context: BrowserContext, trouble: list[str]) -> Page:
    """Return a page of the context with long timeouts, whose complaints go to `trouble`."""
    context.add_init_script(WATCH_TROUBLE)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda note: trouble.append(note.text) if _complains(note) else None)
    return page


_sessions: dict[tuple[str, str], list[Cookie]] = {}
"""Cookies by server and user: each login costs a page and the hash of a password."""


def sign_in(page: Page, address: str, name: str, password: str) -> None:
    """Open an address that requires a login: in the user's last session, or with the form if it has ended."""
    session = urlsplit(address).netloc, name
    page.context.add_cookies(_sessions.get(session, []))
    page.goto(address)
    if "/login" not in page.url:
        return
    page.fill("#username", name)
    page.fill("#password", password)
    page.click("button[type=submit]")
    page.wait_for_url(lambda url: "/login" not in url)
    _sessions[session] = page.context.cookies()


def _complains(note: ConsoleMessage) -> bool:
    return note.type in ("error", "warning") and not _REJECTED.search(note.text)


def _candidates() -> Iterator[str | None]:
    yield os.environ.get("CHROMIUM")
    # Playwright's own default: it starts no browser window, which takes half of Chromium's CPU time.
    yield shutil.which("chromium-headless-shell")
    yield shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    for pattern in ("chromium-*/chrome-linux*/chrome", "chromium_headless_shell-*/*/*headless*shell"):
        yield from (str(path) for path in sorted(cache.glob(pattern), reverse=True))


def write_json(page: Page, text: str) -> None:
    """Replace the text of the policy's JSON editor by pasting: the page draws only a part of it to type over."""
    code = page.locator("#edit-pane .cm-content")
    code.press("Control+a")
    code.evaluate(
        """(node, text) => {
          const clipboardData = new DataTransfer();
          clipboardData.setData('text/plain', text);
          node.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));
        }""",
        text,
    )
