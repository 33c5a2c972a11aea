"""The Sovereignty page: visibility, changes, previews, rejections, and the cost of rules."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.sovereignty import cost
from controlplane.fleet.sovereignty.rules import document_in_force, stored_sovereignty
from controlplane.platform.jobs.calculation import LEASE
from controlplane.platform.jobs.lease import finish, take_waiting
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun, JobState
from routing.regions.sovereignty import SovereigntyRule
from tests.web.fleet.sovereignty.some_regions import put_in_force, some_regions
from tests.web.regions.some_regions import busy
from tests.web.role_clients import ROLES, client_of, make_person

pytestmark = pytest.mark.django_db
NEW = {
    "position": ["1"],
    "name": ["US stays"],
    "from_regions-0": ["us"],
    "effect": ["deny"],
    "note": [""],
}


@pytest.fixture
def admin(pool: Pool) -> Client:
    some_regions()
    return client_of(make_person("admin"))


def words(answer: HttpResponse) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def send(client: Client, act: str, **changes: Any) -> HttpResponse:
    revision = stored_sovereignty().revision
    return client.post(
        "/regions/sovereignty", {**NEW, "default": "allow", "act": act, "revision": revision, "why": "law", **changes}
    )


@pytest.mark.parametrize("role", ROLES)
def test_sovereignty_page_requires_a_role_in_all_pools(pool: Pool, role: str) -> None:
    some_regions()
    answer = client_of(make_person(role, pool)).get("/regions/sovereignty")
    assert answer.status_code == (200 if role in ("viewer", "operator", "admin", "superuser") else 403)
    assert (b"to apply it" in answer.content) == (role in ("admin", "superuser"))


def test_one_region_shows_how_to_add_another_and_no_form(pool: Pool) -> None:
    page = words(client_of(make_person("admin")).get("/regions/sovereignty"))
    assert "One region: all requests stay in it" in page
    assert "Rules apply with a second region" in page
    assert "to apply it" not in page


def test_page_shows_the_rules_as_sentences_and_the_allowed_hops(admin: Client) -> None:
    put_in_force()
    page = words(admin.get("/regions/sovereignty"))
    assert "2 sovereignty rules; all other requests stay in their region" in page
    assert "Requests of clinic that arrive in eu may not go to any other region." in page
    assert "clinic stays: Contract of 2026, §4" in page
    assert re.search(r"all others asia stays denied default allowed into the EU denied default", page)


def test_preview_changes_nothing_and_shows_the_changed_hops(admin: Client) -> None:
    answer = send(admin, "preview")
    assert answer.status_code == 200
    assert "3 hops changed from the rules in force" in words(answer)
    assert document_in_force().rules == ()


def test_preview_names_the_traffic_over_changed_hops(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class Samples:
        latest = busy()

    monkeypatch.setattr("web.fleet.sovereignty.page.fleet_samples", Samples)
    assert "Forwarded over them now: us → asia 3.9/s, us → eu 10.3/s (all tenants)." in words(send(admin, "preview"))
    assert "Forwarded over them now" not in words(admin.get("/regions/sovereignty"))


def test_rules_are_published_with_their_reason(admin: Client) -> None:
    answer = send(admin, "save", why="the new contract")
    assert (answer.status_code, answer["Location"]) == (303, "/regions/sovereignty?said=changed")
    assert document_in_force().rules == (SovereigntyRule("US stays", from_regions=("us",), allow=False),)
    assert AuditEvent.objects.get(verb="sovereignty.change").why == "the new contract"


def test_rules_need_a_reason_and_a_preview_offers_to_apply_them(admin: Client) -> None:
    assert b"Apply these rules?" in send(admin, "preview").content
    assert send(admin, "save", why="").status_code == 422
    assert document_in_force().rules == ()


def test_rules_are_ordered_and_removed(admin: Client) -> None:
    two = {name: [*NEW[name], *NEW[name]] for name in ("effect", "note")}
    two |= {
        "name": ["late", "early"],
        "position": ["2", "1"],
        "from_regions-0": ["eu", "us"],
        "from_regions-1": ["asia"],
    }
    send(admin, "save", **two)
    assert [rule.from_regions for rule in document_in_force().rules] == [("asia",), ("eu", "us")]
    assert [rule.name for rule in document_in_force().rules] == ["early", "late"]
    send(admin, "save", **two, remove=["1"])
    assert [rule.name for rule in document_in_force().rules] == ["late"]


def test_rule_without_effect_is_rejected_at_its_row_and_the_input_is_kept(admin: Client) -> None:
    answer = send(admin, "save", **{"from_regions-0": ["mars"]}, note=["typed"])
    assert answer.status_code == 422
    assert "unknown: mars." in words(answer)
    assert b'value="typed"' in answer.content
    assert document_in_force().rules == ()


def test_stale_form_overwrites_nothing(admin: Client) -> None:
    put_in_force()
    answer = send(admin, "save", revision=1)
    assert answer.status_code == 409
    assert "Another person changed the rules while you edited" in words(answer)
    assert len(document_in_force().rules) == 2


def test_only_admins_change_rules(admin: Client, pool: Pool) -> None:
    assert send(client_of(make_person("operator")), "save").status_code == 403
    assert document_in_force().rules == ()


def test_cost_of_a_draft_is_computed_by_a_job_while_the_page_shows_its_progress(admin: Client) -> None:
    answer = send(admin, "cost")
    assert answer.status_code == 303
    JobRun.objects.filter(job=cost.JOB).update(progress={"done": 17, "of": 100})
    waiting = admin.get(answer["Location"])
    assert "17 %" in words(waiting)
    assert b"data-refresh" in waiting.content
    assert "Requests of all tenants that arrive in us may not go" in words(waiting)
    assert "Apply these rules?" in words(waiting)
    cost.sovereignty_cost()
    page = words(admin.get(answer["Location"]))
    assert "simulated engines: asia 1, eu 1, us 2" in page
    assert re.search(r"US stays −[\d.]+% throughput TTFT P90 \+[\d.]+ s", page)
    assert re.search(r"Throughput under the rules −[\d.]+%", page)
    assert b"data-settled" in admin.get(f"{answer['Location']}&fragment=1").content


def test_failed_and_unknown_simulations_are_named(admin: Client) -> None:
    address = send(admin, "cost")["Location"]
    finish(take_waiting(cost.JOB, LEASE)[0], outcome={"reason": "it took too long"}, state=JobState.FAILED)
    assert "No cost: it took too long." in words(admin.get(address))
    assert admin.get("/regions/sovereignty?cost=x").status_code == 200
    assert "Rules in force" in words(admin.get("/regions/sovereignty?cost=999999"))


def test_only_one_simulation_runs_at_a_time(admin: Client) -> None:
    send(admin, "cost")
    answer = send(admin, "cost")
    assert answer.status_code == 409
    assert "Another calculation is running" in words(answer)


def test_single_region_has_nothing_to_simulate(pool: Pool) -> None:
    client = client_of(make_person("admin"))
    answer = client.post("/regions/sovereignty", {"default": "deny", "act": "cost"})
    assert answer.status_code == 409
    assert "The simulation takes 2 to 6 regions" in words(answer)


def test_markup_in_names_is_escaped(admin: Client) -> None:
    answer = send(admin, "preview", name=["<script>alert(1)</script>"])
    assert b"<script>alert" not in answer.content
