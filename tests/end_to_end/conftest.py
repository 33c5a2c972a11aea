"""The whole program with its demo fleet, and a browser for its console."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser import browser, chromium_path, sign_in, trouble, watched_page
from tests.program import Program, program

__all__ = ["browser", "chromium_path", "program", "trouble"]


@pytest.fixture
def page(browser: Browser, program: Program, trouble: list[str]) -> Iterator[Page]:
    """Open the Fleet page in a browser, signed in as the admin of the first run."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme="dark")
    page = watched_page(context, trouble)
    sign_in(page, program.url, "admin", program.secrets["admin_password"])
    page.wait_for_selector("hw-heat[data-painted]")
    yield page
    context.close()
