"""The policy editor in a real browser over the whole program: errors, publishing, conflicts, merges, rollbacks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import sign_in as fill_login
from tests.browser import watched_page, write_json
from tests.program import Program
from tests.web.axe import serious_violations

pytestmark = [pytest.mark.browser, pytest.mark.processes]
SECOND, PASSWORD = "op-eu-1", "a second editor"
CODE = "#edit-pane .cm-content"


@pytest.fixture(scope="module", autouse=True)
def second_editor(program: Program) -> None:
    """Create an operator in addition to the first admin."""
    program.add_person(SECOND, PASSWORD, "operator")


@pytest.fixture
def sign_in(
    browser: Browser,
    program: Program,
    trouble: list[str],
) -> Iterator[Callable[..., Page]]:
    """Yield a function that opens the demo pool's policy editor as a user, in a browser context of their own."""
    contexts = []

    def open_page(name: str, password: str, scheme: str = "dark") -> Page:
        context = browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        page = watched_page(context, trouble)
        fill_login(page, f"{program.url}/policies/default", name, password)
        expect(page.locator("#policy")).to_be_visible()
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def admin(sign_in: Callable[..., Page], program: Program) -> Page:
    return sign_in("admin", program.secrets["admin_password"])


@pytest.fixture
def operator(sign_in: Callable[..., Page]) -> Page:
    return sign_in(SECOND, PASSWORD, "light")


def live_version(page: Page) -> int:
    return int(page.locator("#policy").get_attribute("data-live") or 0)


def publish(page: Page) -> int:
    """Confirm the publish dialog and return the version that is then live everywhere."""
    page.click("#publish")
    page.fill("#typed", "demo")
    page.click("#question button.primary")
    expect(page.locator("#reach[data-done]")).to_contain_text("on 1 of 1 gateways after")
    return live_version(page)


def test_all_errors_are_listed_and_a_valid_draft_goes_live(
    admin: Page,
    program: Program,
    trouble: list[str],
) -> None:
    before = live_version(admin)
    admin.fill('[name="ttft_slo_s"]', "9000")
    admin.fill('[name="prefill_window_tokens"]', "many")
    text = admin.input_value("#document")
    write_json(admin, text.replace('"late_last"', '"late_lst"'))
    admin.keyboard.press("Control+Enter")
    summary = admin.locator("#error-summary")
    expect(summary).to_be_focused()
    expect(summary.locator("li")).to_have_count(3)
    expect(summary).to_contain_text('order.name "late_lst" is unknown; did you mean late_last?')
    expect(summary).to_contain_text("ttft_slo_s 9,000 is above 3,600 s")
    expect(summary).to_contain_text('prefill_window_tokens "many" is not a number')
    expect(admin.locator("#field-ttft_slo_s-error")).to_contain_text("9,000 is above 3,600 s")
    admin.press(CODE, "Control+Home")
    expect(admin.locator(".cm-lintRange-error").first).to_have_text('"late_lst"')
    assert serious_violations(admin) == []

    admin.reload()
    expect(admin.locator("#kept-notice")).to_be_visible()
    expect(admin.locator('[name="prefill_window_tokens"]')).to_have_value("many")
    admin.select_option('[name="order.name"]', "late_last")
    admin.fill('[name="prefill_window_tokens"]', "4096")
    admin.fill('[name="ttft_slo_s"]', "4")
    admin.fill("#message", "Shorter objective")
    admin.click("#validate")
    expect(admin.locator("#check-verdict")).to_contain_text("Valid.")
    admin.click("#publish")
    expect(admin.locator("#question-title")).to_have_text(f"Publish v{before + 1} to Demo?")
    admin.fill("#typed", "prod")
    admin.click("#question button.primary")
    expect(admin.locator("#typed-error")).to_contain_text('"prod" does not match.')
    assert serious_violations(admin, "#question") == []
    admin.fill("#typed", "demo")
    admin.click("#question button.primary")
    expect(admin.locator("#reach[data-done]")).to_contain_text(f"v{before + 1} is live on 1 of 1 gateways after")
    assert program.decided_by() == before + 1
    expect(admin.locator("#kept-notice")).to_be_hidden()
    assert trouble == []


@pytest.mark.thorough
def test_slower_editor_merges_and_rolls_back(
    admin: Page,
    operator: Page,
    program: Program,
    trouble: list[str],
) -> None:
    first = live_version(admin)
    admin.fill('[name="max_wait_s"]', "45")
    admin.fill('[name="queue_limit"]', "1500")
    admin.fill("#message", "Shorter queue")
    operator.fill('[name="max_wait_s"]', "50")
    operator.fill('[name="lookahead_s"]', "0.1")
    operator.fill("#message", "More room")
    theirs = publish(operator)
    expect(admin.locator("#overtaken")).to_contain_text(f"{SECOND} published v{theirs}")
    admin.click("#publish")
    expect(admin.locator("h1")).to_have_text(f"{SECOND} published v{theirs} while you edited")
    admin.click("text=Save merged draft")
    expect(admin.locator("#error-summary")).to_be_focused()
    expect(admin.locator("#error-summary li")).to_have_count(1)
    assert serious_violations(admin) == []
    admin.check('input[name="choice.max_wait_s"][value="mine"]')
    admin.click("text=Save merged draft")
    expect(admin.locator('[name="lookahead_s"]')).to_have_value("0.1")
    expect(admin.locator('[name="max_wait_s"]')).to_have_value("45")
    expect(admin.locator("#diff .diff-line.added")).to_have_count(2)
    merged = publish(admin)
    assert merged > theirs > first
    assert program.decided_by() == merged

    operator.goto(f"{program.url}/policies/default")
    assert serious_violations(operator) == []
    operator.click(f"a:text-is('Roll back to v{first}')")
    expect(operator.locator("#question-title")).to_have_text(f"Roll Demo back to v{first}?")
    assert serious_violations(operator) == []
    operator.fill("#typed", "demo")
    operator.click("#question button.primary")
    expect(operator.locator("#reach[data-done]")).to_contain_text(f"v{merged + 1} is live on 1 of 1 gateways")
    assert program.decided_by() == merged + 1
    expect(operator.locator('[name="queue_limit"]')).not_to_have_value("1500")
    operator.get_by_role("button", name="Compare", exact=True).click()
    expect(operator.locator("h1")).to_contain_text(f"to v{merged + 1}")
    assert serious_violations(operator) == []
    operator.goto(f"{program.url}/policies")
    assert serious_violations(operator) == []
    assert trouble == []


def test_form_and_json_stay_in_sync_and_keys_work_outside_fields(
    admin: Page,
    trouble: list[str],
) -> None:
    slo = admin.locator('.setting[data-path="ttft_slo_s"]')
    was = admin.input_value('[name="ttft_slo_s"]')
    admin.fill('[name="ttft_slo_s"]', "7.5")
    expect(admin.locator("#document")).to_have_value(re.compile(r'"ttft_slo_s": 7\.5'))
    expect(slo.locator(".was")).to_have_text(f"was {was}")
    write_json(admin, admin.input_value("#document").replace("7.5", "6.25"))
    expect(admin.locator('[name="ttft_slo_s"]')).to_have_value("6.25")
    write_json(admin, admin.input_value("#document").replace("6.25", "6.25,,"))
    expect(admin.locator("#json-problem")).to_contain_text("Line ")
    # The editor draws only the lines in view, and pasting leaves the cursor at the end.
    admin.press(CODE, "Control+Home")
    expect(admin.locator("#edit-pane .cm-lint-marker-error")).to_have_count(1)
    expect(admin.locator('[name="ttft_slo_s"]')).to_have_value("6.25")
    write_json(admin, admin.input_value("#document").replace("6.25,,", "6.25"))
    expect(admin.locator("#json-problem")).to_have_text("")

    expect(admin.locator("#edit-pane .cm-lint-marker-error")).to_have_count(0)
    admin.get_by_role("textbox", name="The policy as JSON").focus()
    admin.keyboard.press("Tab")
    expect(admin.locator("#message")).to_be_focused()

    admin.select_option('[name="placement.name"]', "dual_map")
    expect(admin.locator("#field-dual_map-placement-params-key_blocks")).to_be_visible()
    parameters = json.loads(admin.input_value("#document"))["placement"]["params"]
    assert parameters.items() >= {"rebalance": True, "key_blocks": 2}.items()
    expect(admin.locator("#step-draft-words")).to_contain_text("2 changes")
    admin.fill("#message", "d [ ] typed into a field does nothing else")
    expect(admin.locator("#edit-pane")).to_be_visible()
    admin.locator("h1").click()
    admin.keyboard.press("d")
    expect(admin.locator("#diff-pane")).to_be_visible()
    expect(admin.locator("#diff mark").first).to_be_visible()
    admin.keyboard.press("]")
    expect(admin.locator("#diff .stop")).to_have_count(1)
    admin.keyboard.press("d")
    admin.click('#form-views [data-view="near"]')
    expect(admin.locator('.setting[data-path="max_wait_s"]')).to_be_hidden()
    expect(slo).to_be_visible()
    slo.hover()
    slo.locator(".reset").click()
    expect(admin.locator('[name="ttft_slo_s"]')).to_have_value(was)
    admin.click("#discard")
    expect(admin.locator("#step-draft-words")).to_have_text("no changes yet")
    admin.reload()
    expect(admin.locator("#kept-notice")).to_be_hidden()
    assert trouble == []


def test_essential_forms_work_without_scripts(
    browser: Browser,
    program: Program,
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, java_script_enabled=False)
    page = watched_page(context, [])
    fill_login(page, f"{program.url}/policies/default", SECOND, PASSWORD)
    page.fill('[name="max_wait_s"]', "0")
    page.click("#validate")
    expect(page.locator("#error-summary li")).to_have_count(1)
    page.fill('[name="max_wait_s"]', "33")
    page.fill("#message", "Without a script")
    page.click("#publish")
    page.fill("#typed", "demo")
    page.click("#question button.primary")
    expect(page.locator("#reach")).to_be_visible()
    expect(page.locator('[name="max_wait_s"]')).to_have_value("33")
    context.close()


@pytest.mark.thorough
def test_version_is_published_after_approval_by_a_second_person(
    admin: Page, operator: Page, trouble: list[str]
) -> None:
    admin.click("#approval-rule button")
    expect(admin.locator("#approval-rule")).to_contain_text("Approval: required.")
    operator.fill('[name="max_wait_s"]', "27")
    operator.fill("#message", "Shorter waits")
    operator.click("#publish")
    expect(operator.locator("#second-person")).to_contain_text(f"other than {SECOND}, who wrote it")
    expect(operator.locator("#answer")).to_contain_text("Schedule v")
    draft = operator.url
    operator.fill("#typed", "demo")
    operator.press("#typed", "Enter")
    expect(operator.locator("#schedule")).to_contain_text("goes live at")
    expect(operator.locator("#schedule-until")).to_contain_text(re.compile(r"in \d+"))
    admin.goto(draft.partition("&")[0])
    admin.click('[data-step="approved"] a')
    assert serious_violations(admin) == []
    admin.click("#approve")
    expect(admin.locator("#second-person")).to_contain_text("Approved by admin.")
    operator.click("#schedule button")
    expect(operator.locator("#schedule")).to_have_count(0)
    operator.goto(draft)
    operator.fill("#typed", "demo")
    operator.click("#answer")
    expect(operator.locator("#reach[data-done]")).to_contain_text("on 1 of 1 gateways after")
    expect(operator.locator(".release-timeline")).to_contain_text("Approved by admin")
    admin.goto(operator.url.partition("?")[0])
    admin.click("#approval-rule button")
    expect(admin.locator("#approval-rule")).to_contain_text("Approval: not required.")
    assert trouble == []
