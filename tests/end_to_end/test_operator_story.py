"""An operator's day in the whole program: engines, a drain, a policy with a merge and a rollback, and the audit."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import sign_in, watched_page, write_json
from tests.controlplane.simulated_engine import SimulatedEngine
from tests.program import Program
from tests.web.axe import serious_violations

pytestmark = [pytest.mark.browser, pytest.mark.processes]
OPERATOR, PASSWORD = "op-eu-1", "an operator's password"
LONG_MS = 90_000
"""Time limit of steps that wait for traffic on a busy machine."""


@dataclass(frozen=True)
class Cast:
    """The program, the operator's page, and the page of a second editor."""

    program: Program
    page: Page
    other: Page


@pytest.fixture
def cast(browser: Browser, program: Program, trouble: list[str]) -> Iterator[Cast]:
    program.add_person(OPERATOR, PASSWORD, "operator")
    pages = []
    for name, password, theme in (
        (OPERATOR, PASSWORD, "dark"),
        ("admin", program.secrets["admin_password"], "light"),
    ):
        context = browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme=theme)  # type: ignore[arg-type]
        pages.append(watched_page(context, trouble))
        sign_in(pages[-1], f"{program.url}/", name, password)
        pages[-1].wait_for_selector("hw-heat[data-painted]")
    yield Cast(program, *pages)
    for page in pages:
        page.context.close()


@pytest.fixture
def engine() -> Iterator[SimulatedEngine]:
    """Yield an engine that fits the demo pool, before its start."""
    engine = SimulatedEngine(model="demo-8b", block_tokens=512, extra=("--time-scale", "1"))
    yield engine
    engine.stop()


@pytest.mark.thorough
def test_operator_changes_fleet_and_policy_and_the_audit_lists_each_change(
    cast: Cast, engine: SimulatedEngine, trouble: list[str]
) -> None:
    lost = cast.program.requests("failed")
    a_stopped_engine_is_rejected_with_a_reason_and_accepted_once_it_runs(cast, engine)
    an_engine_is_drained_under_traffic(cast)
    every_error_of_a_draft_is_listed_with_its_path(cast)
    first = live_version(cast.page)
    a_valid_draft_is_published_and_decisions_follow(cast, first)
    the_slower_editor_merges(cast, first + 1)
    the_first_version_is_rolled_back_to(cast, first, first + 4)
    the_audit_lists_every_change(cast, first)
    assert cast.program.requests("failed") == lost
    assert trouble == []


def a_stopped_engine_is_rejected_with_a_reason_and_accepted_once_it_runs(cast: Cast, engine: SimulatedEngine) -> None:
    page = cast.page
    page.goto(f"{cast.program.url}/topology")
    page.click("text=Register engine")
    page.fill("#field-name", "e-31")
    page.fill("#field-url", engine.url)
    page.click("text=Register and check")
    checklist = page.locator("#checklist")
    expect(checklist).to_contain_text("stopped at 1 of 7")
    expect(checklist).to_contain_text(f"Unreachable at {engine.url}: connection refused.")
    expect(checklist).to_contain_text("Check that the engine listens on this address")
    expect(page.locator("#drawer-pill")).not_to_have_text("Serving")
    assert serious_violations(page) == []

    engine.start()
    page.click(".check-form >> text=Check again")
    expect(checklist).to_contain_text("passed, 7 of 7", timeout=LONG_MS)
    expect(page.locator("#drawer-pill")).to_have_text("Serving", timeout=LONG_MS)
    work = page.locator("tr[data-engine]", has_text="e-31").locator('[data-cell="work"]')
    expect(work).not_to_have_text("0, 0", timeout=LONG_MS)
    assert serious_violations(page) == []


def an_engine_is_drained_under_traffic(cast: Cast) -> None:
    page = cast.page
    page.goto(f"{cast.program.url}/?engine=e-02")
    expect(page.locator("#drawer-decisions tbody tr")).not_to_have_count(0, timeout=LONG_MS)
    completed = cast.program.requests("completed")
    with own_requests(cast.program) as answers:
        page.click("#drawer-verbs >> text=Drain")
        expect(page.locator("#verb-effects")).to_be_visible()
        assert serious_violations(page) == []
        page.fill("#verb-why", "kernel update")
        page.click("#verb-send")
        expect(page.locator("#drawer-pill")).to_have_text("Drained", timeout=LONG_MS)
        expect(page.locator(".mark-event[aria-label*='e-02 is draining']")).to_have_count(1)
        while not (answers[200] and cast.program.requests("completed") > completed):
            page.wait_for_timeout(250)
        page.click("#drawer-verbs >> text=Return to service")
        page.click("#verb-send")
        expect(page.locator("#drawer-pill")).to_have_text(re.compile("Serving|Hot"), timeout=LONG_MS)
    # A rejection has Retry-After; any other status would be a lost request.
    assert set(answers) <= {200, 429}, answers
    assert serious_violations(page) == []


def every_error_of_a_draft_is_listed_with_its_path(cast: Cast) -> None:
    page = cast.page
    page.goto(f"{cast.program.url}/policies/default")
    page.fill('[name="ttft_slo_s"]', "9000")
    page.fill('[name="prefill_window_tokens"]', "many")
    write_json(page, page.input_value("#document").replace('"late_last"', '"late_lst"'))
    page.click("#publish")
    errors = page.locator("#error-summary li")
    expect(errors).to_have_count(3)
    paths = errors.evaluate_all("(items) => items.map((item) => item.dataset.path)")
    assert sorted(paths) == ["prefill_window_tokens", "order.name", "ttft_slo_s"]
    expect(page.locator("#error-summary")).to_contain_text('order.name "late_lst" is unknown; did you mean late_last?')
    expect(page.locator("#error-summary")).to_contain_text("ttft_slo_s 9,000 is above 3,600 s")
    assert serious_violations(page) == []


def a_valid_draft_is_published_and_decisions_follow(cast: Cast, before: int) -> None:
    page = cast.page
    page.select_option('[name="order.name"]', "late_last")
    page.fill('[name="prefill_window_tokens"]', "4096")
    page.fill('[name="ttft_slo_s"]', "4")
    page.fill("#message", "Shorter objective")
    publish(page, before + 1)
    assert cast.program.decided_by() == before + 1
    page.goto(f"{cast.program.url}/?engine=e-03")
    expect(page.locator("#drawer-pool")).to_contain_text(f"policy v{before + 1}")
    newest = page.locator("#drawer-decisions tbody tr").first
    story = page.locator("#drawer-story-facts")
    deadline = time.monotonic() + LONG_MS / 1000
    while True:
        expect(newest).to_be_visible(timeout=LONG_MS)
        newest.locator("button, a").first.click()
        expect(story).to_contain_text("policy v")
        if f"policy v{before + 1}" in story.inner_text():
            break
        assert time.monotonic() < deadline, "no decision of the demo's traffic carries the new version"
        page.click("#drawer-story-close")
        page.wait_for_timeout(500)
    assert serious_violations(page) == []


def the_slower_editor_merges(cast: Cast, before: int) -> None:
    page, other = cast.page, cast.other
    for item in (page, other):
        item.goto(f"{cast.program.url}/policies/default")
        assert live_version(item) == before
    page.fill('[name="max_wait_s"]', "45")
    page.fill('[name="queue_limit"]', "1500")
    page.fill("#message", "Shorter queue")
    other.fill('[name="max_wait_s"]', "50")
    other.fill('[name="lookahead_s"]', "0.1")
    other.fill("#message", "More room")
    # The second editor publishes while the operator's dialog is open; its draft is stored as v{before + 1}.
    page.click("#publish")
    page.fill("#typed", "demo")
    publish(other, before + 2)
    assert serious_violations(other) == []
    with page.expect_response(lambda answer: answer.request.method == "POST") as answered:
        page.click("#question button.primary")
    assert answered.value.status == 412
    expect(page.locator("h1")).to_have_text(f"admin published v{before + 2} while you edited")
    assert serious_violations(page) == []
    page.check('input[name="choice.max_wait_s"][value="mine"]')
    page.click("text=Save merged draft")
    expect(page.locator('[name="max_wait_s"]')).to_have_value("45")
    expect(page.locator('[name="queue_limit"]')).to_have_value("1500")
    expect(page.locator('[name="lookahead_s"]')).to_have_value("0.1")
    publish(page, before + 3)
    assert cast.program.decided_by() == before + 3


def the_first_version_is_rolled_back_to(cast: Cast, first: int, live: int) -> None:
    page = cast.page
    assert live_version(page) == live
    page.click(f"a:text-is('Roll back to v{first}')")
    expect(page.locator("#question-title")).to_have_text(f"Roll Demo back to v{first}?")
    assert serious_violations(page) == []
    page.fill("#typed", "demo")
    page.click("#question button.primary")
    expect(page.locator("#reach[data-done]")).to_contain_text(f"v{live + 1} is live on 1 of 1 gateways")
    assert cast.program.decided_by() == live + 1
    expect(page.locator('[name="ttft_slo_s"]')).not_to_have_value("4")
    assert serious_violations(page) == []


def the_audit_lists_every_change(cast: Cast, first: int) -> None:
    page = cast.page
    changes = [
        (OPERATOR, "engine.register", "e-31", ""),
        (OPERATOR, "engine.drain", "e-02", "kernel update"),
        (OPERATOR, "engine.ready", "e-02", ""),
        (OPERATOR, "policy.publish", "default", "Shorter objective"),
        ("admin", "policy.publish", "default", "More room"),
        (OPERATOR, "policy.publish", "default", "Shorter queue"),
        (OPERATOR, "policy.roll_back", "default", ""),
    ]
    for person, verb, thing, why in changes:
        page.goto(f"{cast.program.url}/audit?person={person}&verb={verb}")
        row = page.locator("tr[data-row]", has_text=thing).filter(has_text=why)
        expect(row).to_have_count(1)
        row.locator(".ledger-open").click()
        expect(page.locator(".drawer h2")).to_have_text(verb)
        expect(page.locator(".drawer .ledger-diff .diff-line")).not_to_have_count(0)
    assert serious_violations(page) == []
    page.goto(f"{cast.program.url}/audit?person={OPERATOR}&verb=policy.draft")
    expect(page.locator("tr[data-row]")).to_have_count(3)


def live_version(page: Page) -> int:
    return int(page.locator("#policy").get_attribute("data-live") or 0)


def publish(page: Page, number: int) -> None:
    """Confirm the publish dialog and wait until the version is live everywhere."""
    page.click("#publish")
    page.fill("#typed", "demo")
    page.click("#question button.primary")
    expect(page.locator("#reach[data-done]")).to_contain_text(f"v{number} is live on 1 of 1 gateways after")


@contextmanager
def own_requests(program: Program) -> Iterator[Counter[int]]:
    """Send short requests one by one while the block runs; yield the number of responses by status."""
    answers: Counter[int] = Counter()
    ended = threading.Event()

    def send() -> None:
        body = {"model": "demo-8b", "messages": [{"role": "user", "content": "Where to?"}], "max_tokens": 2}
        while not ended.is_set():
            answers[program.post("/v1/chat/completions", body)[0]] += 1

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield answers
    finally:
        ended.set()
        sender.join(60)
