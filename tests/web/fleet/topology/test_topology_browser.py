"""The Engines page in a browser over the whole program: register, diagnose, fix, serve, drain, and delete."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import sign_in, watched_page
from tests.controlplane.simulated_engine import SimulatedEngine
from tests.program import Program
from tests.web.axe import serious_violations, serious_violations_in_both_themes

pytestmark = [pytest.mark.browser, pytest.mark.processes]
LONG_MS = 60_000


@pytest.fixture
def page(browser: Browser, program: Program, trouble: list[str]) -> Iterator[Page]:
    """Open the Engines page in a browser, signed in as the first admin."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme="dark")
    page = watched_page(context, trouble)
    sign_in(page, f"{program.url}/engines", "admin", program.secrets["admin_password"])
    page.wait_for_selector("#topology-list tr[data-engine]")
    yield page
    context.close()


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[[int], SimulatedEngine]]:
    running: list[SimulatedEngine] = []

    def start_one(block_tokens: int) -> SimulatedEngine:
        engine = SimulatedEngine(model="demo-8b", block_tokens=block_tokens, extra=("--time-scale", "1"))
        engine.start()
        running.append(engine)
        return engine

    yield start_one
    for engine in running:
        engine.stop()


def register(page: Page, name: str, url: str) -> None:
    page.click("text=Register engine")
    page.fill("#field-name", name)
    page.fill("#field-url", url)
    page.click("text=Register and check")


@pytest.mark.thorough
def test_engine_is_registered_fixed_served_drained_and_deleted(
    page: Page,
    program: Program,
    trouble: list[str],
    start: Callable[[int], SimulatedEngine],
) -> None:
    wrong, right = start(256), start(512)
    failed_before = program.requests("failed")
    register(page, "e-31", wrong.url)
    checklist = page.locator("#checklist")
    expect(checklist).to_contain_text("stopped at 5 of 7")
    expect(checklist).to_contain_text("Its blocks have 256 tokens, the pool's 512.")
    expect(checklist).to_contain_text("Start it with --block-size 512")
    row = page.locator("tr[data-engine]", has_text="e-31")
    expect(row).to_contain_text("Preflight: Its blocks have 256")
    assert serious_violations(page) == []
    page.reload()
    expect(checklist).to_contain_text("stopped at 5 of 7")

    page.click(".drawer >> text=Change")
    page.fill("#field-url", right.url)
    page.click("text=Save and check")
    expect(checklist).to_contain_text("passed, 7 of 7")
    expect(checklist).to_contain_text("Same text, same blocks")
    expect(page.locator("#drawer-pill")).to_have_text("Serving")

    page.click(".drawer >> text=Drain")
    expect(page.locator("#confirm-title")).to_have_text("Drain e-31?")
    expect(page.locator(".effects")).to_contain_text("go to 8 other engines of its pool")
    page.fill("#confirm-why", "kernel update")
    page.click("button:has-text('Drain e-31')")
    expect(page.locator("#drawer-pill")).to_have_text("Draining")
    expect(page.locator(".events")).to_contain_text("admin drained it: kernel update")
    expect(page.locator("#flight")).to_have_text(re.compile("left|Drained"))
    expect(page.locator("#flight")).to_contain_text("Drained: nothing is in flight.", timeout=LONG_MS)
    assert program.requests("failed") == failed_before

    page.click(".engine-verbs >> text=Delete")
    page.fill("#typed", "e-13")
    page.click("button:has-text('Delete e-31')")
    expect(page.locator("#error-typed")).to_have_text("Type e-31 to delete it.")
    page.fill("#typed", "e-31")
    page.click("button:has-text('Delete e-31')")
    expect(page.locator("#note")).to_contain_text("e-31 deleted.")
    expect(row).to_have_count(0)
    assert trouble == []


def test_values_stay_live_and_drawers_open_without_a_page_load(page: Page, trouble: list[str]) -> None:
    page.evaluate("window.stayed = true")
    ages = page.locator('tr[data-engine] [data-cell="age"]')
    before = ages.all_inner_texts()
    page.click("tr[data-engine] >> text=e-03")
    expect(page.locator("#drawer-title")).to_have_text("e-03")
    page.keyboard.press("j")
    expect(page.locator("#drawer-title")).to_have_text("e-04")
    expect(page.locator("#live-words")).to_have_text("Live")
    page.wait_for_timeout(1500)
    assert ages.all_inner_texts() != before
    page.keyboard.press("Escape")
    expect(page.locator(".drawer")).to_have_count(0)
    page.go_back()
    expect(page.locator("#drawer-title")).to_have_text("e-04")
    page.keyboard.press("/")
    expect(page.locator("#palette-field")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).not_to_be_visible()
    expect(page.locator("#drawer-title")).to_have_text("e-04")
    page.click("#filters [name=q]")
    page.keyboard.type("e-05")
    expect(page.locator("tr[data-engine]")).to_have_count(1)
    expect(page.locator("#filters [name=q]")).to_be_focused()
    assert "q=e-05" in page.url
    assert page.evaluate("window.stayed") is True
    assert trouble == []


def test_input_in_progress_is_never_replaced(page: Page) -> None:
    page.click("tr[data-engine] >> text=e-06")
    page.click(".drawer >> text=Change")
    page.fill("#field-why", "half a sentence")
    page.wait_for_timeout(2500)
    expect(page.locator("#field-why")).to_have_value("half a sentence")
    page.keyboard.press("Escape")
    expect(page.locator("#field-why")).to_have_value("half a sentence")


def test_second_editor_sees_both_versions(page: Page) -> None:
    other = page.context.new_page()
    for item in (page, other):
        item.goto(f"{page.url.split('/engines')[0]}/engines?engine=e-07&do=change")
    other.fill("#field-speed", "1.1")
    other.click("text=Save and check")
    expect(other.locator("#note")).to_contain_text("e-07 changed.")
    page.fill("#field-speed", "1.2")
    page.click("text=Save and check")
    expect(page.locator(".conflict")).to_contain_text("admin changed it")
    expect(page.locator(".conflict tbody tr")).to_have_text([re.compile("Relative speed.*1.*1.1.*1.2", re.DOTALL)])
    assert serious_violations(page, "#topology-drawer") == []
    page.click("text=Save merged")
    expect(page.locator(".settings")).to_contain_text("1.2×")


def test_pages_have_no_serious_axe_violation(page: Page, program: Program, trouble: list[str]) -> None:
    assert serious_violations_in_both_themes(page) == []
    for query in (
        "engine=e-01",
        "engine=e-01&do=drain",
        "engine=e-01&do=delete",
        "do=register",
        "do=connect",
        "do=pool",
    ):
        page.goto(f"{program.url}/engines?{query}")
        expect(page.locator("#topology-drawer")).to_be_visible()
        assert serious_violations_in_both_themes(page, "#topology-drawer") == [], query
    page.goto(f"{program.url}/engines?q=nothing")
    assert serious_violations_in_both_themes(page) == []
    page.click("text=Clear")
    page.click("text=Paste a list")
    page.fill("#text", "a http://127.0.0.1:1\nb")
    page.click("text=Show preview")
    expect(page.locator("h1")).to_have_text("1 engine can be registered; 1 line needs a change.")
    assert serious_violations_in_both_themes(page) == []
    page.goto(f"{program.url}/engines?do=register")
    page.fill("#field-name", "x")
    page.fill("#field-url", "http://169.254.169.254")
    page.click("text=Register and check")
    expect(page.locator("#form-errors")).to_be_focused()
    assert serious_violations_in_both_themes(page, "#topology-drawer") == []
    assert trouble == []


def test_forms_work_without_scripts(browser: Browser, page: Page, program: Program) -> None:
    context = browser.new_context(java_script_enabled=False, storage_state=page.context.storage_state())
    plain = context.new_page()
    plain.goto(f"{program.url}/engines?q=e-08")
    plain.click("tr[data-engine] >> text=e-08")
    plain.click(".drawer >> text=Maintenance")
    plain.fill("#confirm-why", "disk")
    plain.click("button:has-text('Put e-08 into maintenance')")
    expect(plain.locator("#note")).to_contain_text("e-08 is in maintenance.")
    plain.click(".drawer >> text=Return to service")
    plain.click("button:has-text('Return e-08 to service')")
    expect(plain.locator("#note")).to_contain_text("e-08 returns to service.")
    plain.select_option("#filters [name=state]", "lost")
    plain.click("#filters >> text=Show")
    assert "state=lost" in plain.url
    context.close()


def test_connecting_queries_the_engine_and_shows_its_preflight(
    page: Page, program: Program, start: Callable[[int], SimulatedEngine]
) -> None:
    page.goto(f"{program.url}/engines?do=connect")
    page.fill("#field-url", start(512).url)
    page.click("text=Check engine")
    expect(page.locator("#topology-drawer")).to_contain_text("Blocks of 512 tokens")
    assert serious_violations(page, "#topology-drawer") == []
    page.click("#connect-form >> text=Connect")
    expect(page.locator("#checklist")).to_contain_text("passed, 7 of 7", timeout=LONG_MS)
