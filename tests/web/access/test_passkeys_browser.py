"""Passkeys in Chromium with a virtual authenticator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.platform.models.audit_event import AuditEvent
from tests.browser import watched_page
from tests.web.access.access_world import fresh
from tests.web.axe import assert_fits, serious_violations_in_both_themes

__all__ = ["fresh"]
pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip
PICTURES = os.environ.get("ACCESS_PICTURES", "")
DEVICE = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@pytest.fixture
def page(
    browser: Browser, transactional_db: None, live_server: LiveServer, trouble: list[str], settings: object
) -> Iterator[Page]:
    """Return a page of a browser whose device can keep passkeys."""
    settings.ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
    User.objects.create_superuser("ann", password="correct horse battery")
    context = browser.new_context(base_url=live_server.url, color_scheme="dark")
    page = watched_page(context, trouble)
    device = context.new_cdp_session(page)
    device.send("WebAuthn.enable")
    device.send("WebAuthn.addVirtualAuthenticator", {"options": DEVICE})
    yield page
    context.close()


def sign_in(page: Page) -> None:
    page.goto("/login")
    page.get_by_label("Name").fill("ann")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/")


def picture(page: Page, name: str) -> None:
    """Keep pictures of the page for people, in both themes and three widths, if a folder is set."""
    for theme in ("dark", "light") if PICTURES else ():
        page.emulate_media(color_scheme=theme)
        for width in (390, 1280, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            page.screenshot(path=Path(PICTURES) / f"{name}-{width}-{theme}.png")
    page.emulate_media(color_scheme="dark")


def test_a_passkey_is_added_signs_in_and_is_removed(page: Page) -> None:
    sign_in(page)
    page.goto("/access/you")
    page.get_by_label("Name of the passkey").fill("laptop")
    page.get_by_role("button", name="Add passkey").click()
    expect(page.get_by_text("Passkey added")).to_be_visible()
    expect(page.get_by_text("Passkey laptop")).to_be_visible()
    picture(page, "you")
    page.context.clear_cookies()
    page.goto("/login?next=/audit")
    picture(page, "login")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    assert User.objects.get().console_sessions.first().method == "passkey"
    page.goto("/access/you")
    page.get_by_role("button", name="Remove passkey laptop").click()
    expect(page.get_by_text("Second factor removed")).to_be_visible()
    assert set(AuditEvent.objects.values_list("verb", flat=True)) == {"person.add_factor", "person.remove_factor"}
    page.context.clear_cookies()
    page.goto("/login")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("alert")).to_have_text("No account here knows this passkey.")


@pytest.mark.parametrize("path", ["/access/you", "/access/you/app", "/access/people?person=ann"])
def test_pages_fit_and_have_no_axe_violation(page: Page, path: str) -> None:
    sign_in(page)
    page.goto(path)
    picture(page, path.strip("/").replace("/", "-").partition("?")[0])
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert_fits(page, width)
    assert serious_violations_in_both_themes(page) == []
