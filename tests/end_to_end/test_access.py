"""Access, Audit, and Jobs in a real browser over the whole program: keys, sessions, and job runs."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import PATIENCE_MS, sign_in, watched_page
from tests.patience import PATIENCE_S, wait_until
from tests.program import Program
from tests.web.axe import serious_violations_in_both_themes

pytestmark = [pytest.mark.browser, pytest.mark.processes]
GOOD = "correct-horse-battery"


def signed_in(browser: Browser, program: Program, trouble: list[str], name: str, password: str, theme: str) -> Page:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=theme)
    page = watched_page(context, trouble)
    sign_in(page, f"{program.url}/access", name, password)
    page.wait_for_selector(".page-tabs")
    return page


@pytest.fixture
def admin(browser: Browser, program: Program, trouble: list[str]) -> Iterator[Page]:
    page = signed_in(browser, program, trouble, "admin", program.secrets["admin_password"], "dark")
    yield page
    page.context.close()


def answer_to(program: Program, key: str) -> int:
    """Return the status of the gateway's response to a request with this key."""
    request = urllib.request.Request(f"{program.url}/v1/models", headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def wait_for_status(program: Program, key: str, status: int) -> None:
    wait_until(lambda: answer_to(program, key) == status, f"the key's requests are not answered by {status}")


def create_key(page: Page, program: Program, name: str) -> str:
    page.goto(f"{program.url}/access/keys")
    page.click("#new-key")
    page.fill("#field-name", name)
    page.fill("#field-rate_per_min", "1000")
    page.click("text=Create key")
    # The scripts have run once this element exists; an earlier click would copy nothing.
    page.wait_for_selector("#key-text")
    page.wait_for_load_state()
    return page.input_value("#key-text")


def test_gateway_accepts_a_key_until_it_is_revoked(admin: Page, program: Program, trouble: list[str]) -> None:
    key = create_key(admin, program, "flow")
    assert key.startswith("hw_")
    admin.context.grant_permissions(["clipboard-read", "clipboard-write"])
    admin.click("text=Copy key")
    expect(admin.locator("[data-copied]")).to_have_text("Copied.", timeout=PATIENCE_MS)
    assert admin.evaluate("navigator.clipboard.readText()") == key
    wait_for_status(program, key, 200)
    admin.goto(f"{program.url}/access/keys?q=flow")
    assert key not in admin.content()
    admin.click("tr[data-row] .ledger-open")
    admin.click("text=Revoke key")
    admin.fill("#dialog-why", "end of the test")
    admin.click("dialog >> text=Revoke key")
    expect(admin.locator("[data-toast]")).to_contain_text("within 5 s", timeout=PATIENCE_MS)
    wait_for_status(program, key, 401)
    admin.goto(f"{program.url}/audit?verb=key.revoke")
    admin.click("tr[data-row] .ledger-open")
    expect(admin.locator(".drawer")).to_contain_text("end of the test", timeout=PATIENCE_MS)
    expect(admin.locator(".diff-line.added mark").filter(has_text="20").first).to_be_visible(timeout=PATIENCE_MS)
    assert trouble == []


@pytest.mark.thorough
def test_key_page_shows_the_last_use_of_a_key(admin: Page, program: Program) -> None:
    key = create_key(admin, program, "used")
    wait_for_status(program, key, 200)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        admin.goto(f"{program.url}/access/keys?q=used")
        if "ago" in admin.locator("tr[data-row] td").nth(5).inner_text():
            return
        assert time.monotonic() < deadline
        admin.wait_for_timeout(500)


@pytest.mark.thorough
def test_ending_a_session_disconnects_its_open_page(
    browser: Browser, admin: Page, program: Program, trouble: list[str]
) -> None:
    admin.goto(f"{program.url}/access/people?new")
    admin.fill("#field-username", "watcher")
    admin.fill("#field-password", GOOD)
    admin.get_by_label("All pools").check()
    admin.click(".drawer button[type=submit]")
    expect(admin.locator("#drawer-title")).to_have_text("watcher", timeout=PATIENCE_MS)
    theirs = signed_in(browser, program, trouble, "watcher", GOOD, "light")
    with theirs.expect_websocket() as opened:
        theirs.goto(program.url)
    theirs.wait_for_selector("hw-heat[data-painted]")
    admin.click("text=Sign out everywhere")
    expect(admin.locator("[data-toast]")).to_contain_text("Signed out", timeout=PATIENCE_MS)
    deadline = time.monotonic() + PATIENCE_S
    while not opened.value.is_closed():
        assert time.monotonic() < deadline, "the socket of an ended session is still open"
        theirs.wait_for_timeout(100)
    theirs.goto(program.url)
    assert "/login" in theirs.url
    theirs.context.close()


@pytest.mark.thorough
def test_job_page_shows_a_cancelled_run_without_a_reload(admin: Page, program: Program, trouble: list[str]) -> None:
    admin.goto(f"{program.url}/jobs?job=probe")
    admin.click("#active-title >> xpath=ancestor::section >> .ledger-open")
    run = int(admin.locator(".drawer-meta").inner_text().split()[1].rstrip(","))
    admin.fill("#run-why", "typed and kept")
    admin.wait_for_timeout(4500)
    expect(admin.locator("#run-why")).to_have_value("typed and kept")
    admin.click("text=Cancel run")
    expect(admin.locator(".drawer .pill")).to_have_text("Cancelled", timeout=PATIENCE_MS)
    expect(admin.locator(".drawer .events")).to_contain_text("typed and kept", timeout=PATIENCE_MS)
    expect(admin.locator(f"#row-{run}")).to_contain_text("cancelled", timeout=PATIENCE_MS)
    # The next wake-up starts another run of the probe, so the engines are still probed.
    expect(admin.locator("tr[data-row]", has_text="running")).to_have_count(1, timeout=PATIENCE_MS)
    assert trouble == []


@pytest.mark.thorough
def test_keyboard_reaches_rows_and_filters_and_closes_the_drawer(admin: Page, program: Program) -> None:
    admin.goto(f"{program.url}/audit")
    admin.keyboard.press("j")
    admin.keyboard.press("j")
    admin.keyboard.press("Enter")
    expect(admin.locator("tr.selected")).to_have_count(1, timeout=PATIENCE_MS)
    # Keys work once the page's script has run, which the load state guarantees.
    admin.wait_for_load_state("load")
    second = admin.locator("tr.selected").get_attribute("id")
    admin.keyboard.press("k")
    # Compare ids, not positions: an event that arrived meanwhile is the first row now.
    expect(admin.locator(f"tr.selected:not([id='{second}'])")).to_have_count(1, timeout=PATIENCE_MS)
    admin.wait_for_load_state("load")
    admin.keyboard.press("Escape")
    expect(admin.locator(".drawer")).to_have_count(0, timeout=PATIENCE_MS)
    admin.wait_for_load_state("load")
    admin.keyboard.press("/")
    expect(admin.locator("#palette-field")).to_be_focused()
    admin.keyboard.press("Escape")
    admin.keyboard.press("g")
    admin.keyboard.press("j")
    admin.wait_for_url(f"{program.url}/jobs")
    admin.wait_for_load_state("load")
    admin.keyboard.press("f")
    admin.wait_for_url(f"{program.url}/jobs?failed=1")


def test_access_pages_have_no_serious_axe_violation_or_console_error(
    admin: Page, program: Program, trouble: list[str]
) -> None:
    page = admin
    # A drawer or dialog is checked alone: the page behind it is that of its listing.
    drawers = [("/access/sessions?end", "dialog")]
    drawers += [(f"/access/{tab}?new", ".drawer") for tab in ("keys", "people", "tenants")]
    pages = [f"/access/{tab}" for tab in ("keys", "people", "tenants", "sessions", "you")] + ["/audit", "/jobs"]
    faults = {}
    for address in (*pages, "/access/keys?q=nobody", "/audit?person=nobody", "/audit?since=x", "/jobs?failed=1"):
        page.goto(program.url + address)
        if violations := serious_violations_in_both_themes(page):
            faults[address] = violations
        if "?" not in address and (opener := page.locator(".ledger-open")).count():
            drawers.append((opener.first.get_attribute("href") or "", ".drawer"))
    drawers.append((next(address for address, _ in drawers if "key=" in address) + "&revoke", "dialog"))
    for address, part in drawers:
        page.goto(program.url + address)
        expect(page.locator(part).first).to_be_visible()
        if violations := serious_violations_in_both_themes(page, part):
            faults[address] = violations
    assert not faults, json.dumps(faults, indent=1)
    assert [note for note in trouble if "400" not in note] == []
