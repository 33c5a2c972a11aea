"""Placement, order, and admission are chosen in the form of the running program, and take effect in the fleet."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from routing.policy.setting import fixed_values
from routing.registry import STAGES
from tests.browser import PATIENCE_MS, watched_page
from tests.browser import sign_in as fill_login
from tests.patience import PATIENCE_S
from tests.program import Program

pytestmark = [pytest.mark.browser, pytest.mark.processes]


@pytest.fixture
def admin(browser: Browser, program: Program, trouble: list[str]) -> Iterator[Page]:
    """Open the policy editor of the demo pool, with its script running."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme="dark")
    page = watched_page(context, trouble)
    fill_login(page, f"{program.url}/policies/default", "admin", program.secrets["admin_password"])
    expect(page.locator("#form-views")).to_be_visible()
    yield page
    context.close()


def until(page: Page, happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not happened():
        assert time.monotonic() < deadline, what
        page.wait_for_timeout(200)


def publish(page: Page) -> None:
    page.fill("#message", "Another rule")
    page.click("#publish")
    page.fill("#typed", "demo")
    page.click("#question button.primary")
    expect(page.locator("#reach[data-done]")).to_contain_text("on 1 of 1 gateways after")


def decided(program: Program) -> dict[str, str]:
    """Return the response for a new decision."""
    status, answer = program.post("/api/v1/route", {"model": "demo-8b", "prompt": "hello", "wait": False})
    assert status == 200, answer
    return json.loads(answer)


def explained(program: Program, decision_id: str) -> dict[str, Any]:
    """Return the gateway's record of a decision."""
    headers = {"Authorization": f"Bearer {program.secrets['api_key']}"}
    question = urllib.request.Request(f"{program.url}/api/v1/explain/{decision_id}", headers=headers)
    with urllib.request.urlopen(question, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())["decision"]


def test_every_registered_rule_can_be_chosen_and_shows_its_text_and_parameters(admin: Page, trouble: list[str]) -> None:
    for stage, table in STAGES.items():
        group = admin.locator(f'[data-stage="{stage}"]')
        options = admin.locator(f'[name="{stage}.name"] option')
        assert [all_inner_text.strip() for all_inner_text in options.all_inner_texts()] == list(table)
        for name, kind in table.items():
            admin.select_option(f'[name="{stage}.name"]', name)
            rule = group.locator(f'[data-rule="{name}"]')
            sentence = (kind.__doc__ or "").partition("\n")[0]
            expect(rule.locator(".rule-help")).to_have_text(sentence)
            assert options.nth(list(table).index(name)).get_attribute("title") == sentence
            document = json.loads(admin.input_value("#document"))
            assert document[stage]["name"] == name
            settings = set(kind.__struct_fields__) - set(fixed_values(kind))
            assert rule.locator(".setting:visible").count() == len(settings)
            assert set(document[stage]["params"]) == settings
    assert trouble == []


@pytest.mark.thorough
def test_published_placement_order_and_admission_take_effect_and_are_shown(
    admin: Page, program: Program, trouble: list[str]
) -> None:
    fleet = admin.context.new_page()
    fleet.goto(f"{program.url}/")
    fleet.locator(".row-name").first.click()
    expect(fleet.locator("#drawer-against")).to_contain_text("least_cost")
    expect(fleet.locator("#drawer-against")).to_contain_text("late_last")
    assert decided(program)["placement"] == "least_cost"

    admin.bring_to_front()
    admin.select_option('[name="placement.name"]', "dual_map")
    admin.select_option('[name="order.name"]', "slack")
    admin.select_option('[name="admission.mode"]', "predictive_system")
    publish(admin)
    decision = explained(program, decided(program)["decision_id"])
    assert (decision["placement"], decision["order"]) == ("dual_map", "slack")

    fleet.bring_to_front()
    expect(fleet.locator("#drawer-against")).to_contain_text("dual_map")
    expect(fleet.locator("#drawer-against")).to_contain_text("slack")
    expect(fleet.locator("#drawer-against")).to_contain_text("predictive_system")
    expect(fleet.locator("#drawer-since-title ~ ol")).to_contain_text("live")
    expect(fleet.locator("#drawer-decisions")).to_contain_text("match")
    until(
        fleet, lambda: fleet.locator("#queue-dispatched .line-value b").first.inner_text() not in {"—", "0"}, "no grant"
    )

    admin.bring_to_front()
    admin.click("#reach a")
    admin.fill("#typed", "demo")
    admin.click("#question button.primary")
    expect(admin.locator("#reach[data-done]")).to_contain_text("on 1 of 1 gateways after")
    assert decided(program)["placement"] == "least_cost"
    assert trouble == []
