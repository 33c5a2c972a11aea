"""The Automation pages: state and reason of each automation, its actions, and the people who may use them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.automation.engine_verdicts import put_verdict
from controlplane.automation.models.engine_action import EngineAction
from controlplane.automation.models.engine_health import EngineHealth
from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.models.pool_automation import PoolAutomation
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.objectives.objective import Objective
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.policies.models.policy_version import PolicyVersion
from tests.page_text import page_text
from tests.web.fleet.topology.topology_fleet import make_engines
from tests.web.policies.policy_scene import sample_of
from tests.web.role_clients import ROLES, client_of, make_person, make_pool
from web.live.feed import FleetFeed

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("feed")]
OPERATORS = {"pool_operator", "operator", "admin", "superuser"}
ADVICE = {
    "action": "add",
    "engines": 2,
    "target": 4,
    "add": ["mixed", "mixed"],
    "drain": [],
    "demand": 2.6,
    "reasons": [{"code": "violation", "text": "71 % of 240 requests were on time"}],
}


@pytest.fixture
def pool(db: None) -> Pool:
    """Return a pool with two engines."""
    pool = make_pool()
    make_engines(pool, 2)
    return pool


def round_of(pool: Pool, job: str, plan: dict[str, Any], mode: str = "advise", **memory: Any) -> JobRun:
    """Store the outcome of the automation's last round, two seconds ago."""
    at_s = timezone.now().timestamp() - 2
    reason = plan["reasons"][0]["text"] if plan.get("reasons") else ""
    return JobRun.objects.create(
        job=job,
        shard=pool.pk,
        state=JobState.ACTIVE,
        started_at=timezone.now(),
        plan={"at_s": at_s, **plan},
        outcome={"mode": mode, "reason": reason},
        memory=memory,
    )


def action_of(pool: Pool, state: str = "wanted", **fields: Any) -> EngineAction:
    now = timezone.now()
    defaults = {"key": "action-1", "kind": "start", "by": "scaling", "requested_at": now, "next_try_at": now}
    return EngineAction.objects.create(
        pool=pool, state=state, **{**defaults, "deadline_at": now + timedelta(minutes=15), **fields}
    )


def show(client: Client, query: str = "", status: int = 200) -> str:
    answer = client.get(f"/automation/chat{query}")
    assert answer.status_code == status
    return re.sub(r"[ \n]+", " ", page_text(answer))


def card(page: str, job: str) -> str:
    return page.partition(f'id="card-{job}"')[2].partition("</li>")[0]


def send(client: Client, verb: str, **fields: str) -> Any:
    return client.post(f"/automation/chat/{verb}", fields)


def test_card_shows_mode_reason_why_nothing_changes_and_next_change(operator: Client, pool: Pool) -> None:
    now_s = timezone.now().timestamp()
    calm = {"action": "none", "reasons": [{"code": "right_size", "text": "1.1 engines' work needs 2 engines"}]}
    round_of(pool, "scaling", {**ADVICE, **calm, "add": []}, added_s=now_s)
    text = card(show(operator), "scaling")
    assert "No advice." in text
    assert "Why no action" in text
    assert "needs 2 engines." in text
    assert re.search("Adding: in [^.]+\\. Draining: after 2\\u202fmin of low load\\.", text)
    assert "No plan proposed a change." in text


def test_automation_that_never_ran_or_stopped_is_reported(operator: Client, pool: Pool) -> None:
    run = round_of(pool, "rebalance", {"reasons": []})
    JobRun.objects.filter(pk=run.pk).update(plan={"at_s": timezone.now().timestamp() - 90})
    page = show(operator)
    assert "Not run yet" in card(page, "scaling")
    assert "No evaluation since" in card(page, "rebalance")


def test_last_plan_with_changes_is_kept_with_its_reasons(operator: Client, pool: Pool) -> None:
    PlanRecord.objects.create(
        pool="chat",
        job="scaling",
        at=timezone.now() - timedelta(minutes=9),
        mode="act",
        changes=True,
        reasons=ADVICE["reasons"],
        plan=ADVICE,
        outcome={"carried_out": True},
    )
    page = show(operator)
    text = card(page, "scaling")
    for words in ("9\u202fmin ago", "Add 2 engines.", "71 % of 240 requests were on time."):
        assert words in text
    assert "executed" in page.split('id="plans-title"')[1]


def test_plans_repeated_for_the_same_reasons_share_a_row(operator: Client, pool: Pool) -> None:
    now = timezone.now()
    for ago_s, code in ((5, "violation"), (10, "violation"), (15, "violation"), (20, "forecast"), (25, "violation")):
        reasons = [{"code": code, "text": f"{code} {ago_s} s ago"}]
        at = now - timedelta(seconds=ago_s)
        PlanRecord.objects.create(pool="chat", job="scaling", at=at, mode="advise", changes=True, reasons=reasons)
    for page in (show(operator), page_text(operator.get("/automation"))):
        plans = page.split('id="plans-title"')[1]
        assert plans.count("<td>Advises, not executed</td>") == 3
        assert f"3×, since {now - timedelta(seconds=15):%H:%M:%S}" in plans
        assert "Violation 5 s ago." in plans
        assert "violation 10 s ago" not in plans


def test_late_pool_is_the_verdict_and_its_advice_follows(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    round_of(pool, "scaling", ADVICE)
    assert "Scaling:" in show(operator)
    feed.take(sample_of(pool, on_time_share=0.3, at=timezone.now().timestamp()))
    page = show(operator)
    assert "30.0\u202f% on time, target 90.0\u202f%." in page.partition("<h1>")[2].partition("</h1>")[0]
    assert "Scaling advises to add 2 engines." in page
    assert f"<h1>{pool.name}: 30.0\u202f% on time, target 90.0\u202f%</h1>" in page_text(operator.get("/automation"))


def test_a_pool_below_its_objective_is_never_steady(operator: Client, pool: Pool, feed: FleetFeed) -> None:
    assert "No live figures." in show(operator)
    feed.take(sample_of(pool, on_time_share=0.93, at=timezone.now().timestamp()))
    assert "Steady." in show(operator)
    Objective.objects.create(pool="chat", target=95.0)
    for page in (show(operator), page_text(operator.get("/automation"))):
        assert "93.0\u202f% on time, target 95.0\u202f%" in page


def test_advice_stays_shown_for_a_few_rounds_with_the_bounds_of_demand(operator: Client, pool: Pool) -> None:
    round_of(pool, "scaling", {**ADVICE, "add": [], "adds_above": 5.53, "drains_below": 3.9})
    for ago_s, words in ((20, "No advice."), (10, "Advises to add 2 engines.")):
        plan(timezone.now() - timedelta(seconds=ago_s), "advise")
        assert words in (text := card(show(operator), "scaling"))
        assert "Demand between 3.9 and 5.5 engines changes nothing." in text


def test_ratio_is_shown_only_if_the_pool_has_roles(operator: Client, pool: Pool) -> None:
    assert 'id="card-prefill_decode"' not in show(operator)
    Engine.objects.filter(name="e-0001").update(role="prefill")
    assert 'id="card-prefill_decode"' in show(operator)


def test_pool_is_frozen_and_unfrozen_from_the_page(operator: Client, pool: Pool) -> None:
    action_of(pool)
    assert "1 action not yet started will be canceled" in show(operator, "?do=freeze")
    assert "Say why the pool is frozen" in page_text(send(operator, "freeze", revision="1"))
    answer = send(operator, "freeze", why="a move", revision="1", range="5m")
    assert (answer.status_code, answer["Location"]) == (303, "/automation/chat?range=5m&said=frozen")
    page = show(operator)
    assert "Frozen by operator, just now: a move." in page
    assert "Unfreeze pool" in page
    assert EngineAction.objects.get().state == "cancelled"
    send(operator, "unfreeze")
    assert not PoolAutomation.objects.get().frozen
    verbs = AuditEvent.objects.filter(object_kind="pool", actor_name="operator").values_list("verb", flat=True)
    assert set(verbs) == {"pool.freeze", "pool.unfreeze"}


def test_pool_size_is_overridden_for_a_limited_time(operator: Client, pool: Pool) -> None:
    assert send(operator, "override", engines="4", length_s="3600", why="launch").status_code == 303
    stored = PoolAutomation.objects.get()
    assert (stored.override_engines, stored.override_prefill, stored.why) == (4, None, "launch")
    assert timedelta(minutes=59) < stored.override_until - timezone.now() <= timedelta(hours=1)
    assert "Fixed at 4 engines until" in show(operator)
    send(operator, "end-override")
    assert PoolAutomation.objects.get().override_until is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"engines": "many", "length_s": "900"}, "whole number"),
        ({"engines": "0", "length_s": "900"}, "The live policy allows 1 to 16"),
        ({"engines": "17", "length_s": "900"}, "The live policy allows 1 to 16"),
        ({"engines": "", "length_s": "900"}, "Enter the number of engines"),
        ({"engines": "3", "length_s": "9999999"}, "seven days at most"),
    ],
)
def test_invalid_override_is_shown_again_with_its_input(
    operator: Client, pool: Pool, fields: dict[str, str], words: str
) -> None:
    answer = send(operator, "override", **fields, why="because")
    page = page_text(answer)
    assert answer.status_code == 422
    assert words in page
    assert 'value="because"' in page
    assert not PoolAutomation.objects.exclude(override_until=None).exists()


def test_override_dialog_shows_current_and_allowed_engine_counts(operator: Client, pool: Pool) -> None:
    engines = Engine.objects.filter(pool=pool, desired_state="ready").count()
    page = show(operator, "?do=override")
    assert f'data-now="{engines}" data-least="1" data-most="16"' in page
    assert f"{engines} now" in page


def test_longest_override_is_accepted(operator: Client, pool: Pool) -> None:
    assert send(operator, "override", engines="3", length_s="604800").status_code == 303


def test_concurrent_change_is_not_overwritten(operator: Client, pool: Pool) -> None:
    send(operator, "override", engines="3", length_s="900", revision="1")
    answer = send(operator, "freeze", why="a move", revision="1")
    assert answer.status_code == 412
    assert "Another person changed this pool" in page_text(answer)
    assert not PoolAutomation.objects.get().frozen


def test_advice_is_followed_from_the_page_once(operator: Client, pool: Pool) -> None:
    round_of(pool, "scaling", ADVICE)
    page = show(operator)
    assert "Advises to add 2 engines." in card(page, "scaling")
    assert "do=follow&amp;job=scaling" in page
    assert 'name="advice" value="+mixed,+mixed"' in show(operator, "?do=follow&job=scaling")
    fields = {"job": "scaling", "advice": "+mixed,+mixed", "why": "agreed"}
    assert send(operator, "follow", **fields).status_code == 303
    assert EngineAction.objects.filter(kind="start", by="operator").count() == 2
    again = send(operator, "follow", **fields)
    assert again.status_code == 409
    assert "started since this advice" in page_text(again)


def test_actions_of_a_manual_pool_ask_for_confirmation(operator: Client, pool: Pool) -> None:
    Pool.objects.update(actuator="manual")
    action_of(pool, "sent", why="too many are late")
    page = show(operator)
    assert "Waiting for operator" in page
    assert "Start an engine: done?" in show(operator, "?do=confirm&action=action-1")
    assert send(operator, "actions/action-1/confirm", why="done").status_code == 303
    assert EngineAction.objects.get().actuator_state["confirmed_by"] == "operator"
    assert send(operator, "actions/action-1/withdraw").status_code == 303
    assert send(operator, "actions/action-1/withdraw").status_code == 409


def test_actions_show_errors_and_retries(operator: Client, pool: Pool) -> None:
    now = timezone.now()
    action_of(pool, attempts=4, says="the webhook answered 503", next_try_at=now + timedelta(hours=2, minutes=10))
    action_of(pool, "failed", key="action-2", says="gave up after 15 min", finished_at=now)
    page = show(operator)
    assert "The webhook answered 503." in page
    assert "Tried 4 times, next try in 2\u202fh" in page
    assert "Gave up after 15 min." in page


def test_health_shows_reason_start_and_share_and_can_be_overridden(operator: Client, pool: Pool) -> None:
    engine = Engine.objects.get(name="e-0001")
    since = timezone.now() - timedelta(hours=5)
    ramp = {"slow_start_from": 0.1, "slow_start_s": 36_000}
    put_verdict(engine, "probation", actor=program("t"), since=since, code="x", reason="no progress", **ramp)
    page = show(operator)
    for words in ("Returning", "No progress.", "55\u202f%", "5\u202fh ago", "do=trust"):
        assert words in page
    assert send(operator, "engines/chat-1/trust", why="fixed").status_code == 303
    assert EngineHealth.objects.get().state == "healthy"
    assert "Exempt from health checks" in show(operator)
    assert send(operator, "engines/chat-2/quarantine", why="smoke").status_code == 303
    page = show(operator)
    assert "until it is returned to service" in page
    assert "By operator: smoke." in page


@pytest.mark.parametrize("role", ROLES)
def test_operators_control_automations_and_viewers_only_read(pool: Pool, role: str) -> None:
    round_of(pool, "scaling", ADVICE)
    client = client_of(make_person(role, pool))
    sees, steers = role != "nobody", role in OPERATORS
    page = show(client, "?do=freeze", 200 if sees else 403)
    assert ("Freeze chat?" in page) is steers
    assert ("do=follow" in page) is steers
    expected = 303 if steers else 403
    for verb in ("freeze", "override", "engines/chat-1/quarantine", "follow"):
        answer = send(
            client, verb, engines="bad" if not steers else "3", length_s="900", job="scaling", advice="x", why="w"
        )
        assert answer.status_code in ({expected, 409} if verb == "follow" and steers else {expected}), verb
    assert (show(client, "", 200 if sees else 403).count("Frozen") > 0) is steers


def test_overview_has_a_row_for_each_visible_pool(operator: Client, pool: Pool) -> None:
    make_pool("agents")
    send(operator, "freeze", why="a move")
    page = page_text(operator.get("/automation"))
    assert page.index('id="row-agents"') < page.index('id="row-chat"')
    assert "by operator" in page
    viewer = client_of(make_person("pool_viewer", pool))
    assert 'id="row-agents"' not in page_text(viewer.get("/automation"))


@pytest.mark.parametrize(
    "query", ["do=x", "do=follow", "do=follow&job=%00", "do=confirm&action=no", "do=trust&engine=no"]
)
def test_links_to_unknown_objects_open_no_drawer(operator: Client, pool: Pool, query: str) -> None:
    assert "drawer-title" not in show(operator, f"?{query}")


def test_fragment_has_only_the_live_sections(operator: Client, pool: Pool) -> None:
    text = show(operator, "?fragment=1&range=5m")
    assert "<html" not in text
    assert "automation-charts" not in text
    assert 'id="automation-top"' in text
    assert 'id="automation-lists"' in text
    assert "?range=5m&amp;do=freeze" in text


def test_plan_from_before_an_override_is_not_shown_as_the_operators_request(operator: Client, pool: Pool) -> None:
    run = round_of(pool, "scaling", ADVICE)
    PoolAutomation.objects.create(pool=pool, override_engines=2, override_until=timezone.now() + timedelta(minutes=5))
    text = card(show(operator), "scaling")
    assert "the first evaluation starts within seconds" in text
    assert "By an operator" not in text
    JobRun.objects.filter(pk=run.pk).update(outcome={"mode": "override"})
    assert "By an operator: add 2 engines." in card(show(operator), "scaling")


def test_plan_names_deleted_engines(operator: Client, pool: Pool) -> None:
    action_of(pool, "done", key="eng-123", engine_name="e-05", finished_at=timezone.now())
    round_of(pool, "scaling", {**ADVICE, "add": [], "drain": ["eng-123"]})
    assert "Advises to drain e-05." in card(show(operator), "scaling")


def test_a_pool_at_rest_says_so_and_counts_its_sleeping_engines(operator: Client, pool: Pool) -> None:
    publish_scaling(pool, {"mode": "act", "min_engines": 0})
    Engine.objects.filter(pool=pool).update(desired_state="asleep")
    text = " ".join(re.sub(r"<[^>]+>", " ", show(operator)).split())
    count = Engine.objects.filter(pool=pool).count()
    assert "Desired 0 engines the next request starts one" in text
    assert f"as desired, {count} asleep" in text
    assert f"{count} asleep" in page_text(operator.get("/automation"))
    publish_scaling(pool, {"mode": "off", "min_engines": 0})
    assert "the next request starts one" not in show(operator)


def publish_scaling(pool: Pool, scaling: dict[str, Any]) -> None:
    policy = pool.policy
    policy.live_version = PolicyVersion.objects.create(
        policy=policy,
        number=policy.versions.count() + 1,
        routing_document={},
        automation_document={"scaling": scaling},
    )
    policy.save()


def test_many_engines_take_as_many_queries_as_few(
    operator: Client, pool: Pool, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    make_engines(pool, 300, start=10)
    for engine in Engine.objects.filter(name__startswith="e-02"):
        put_verdict(engine, "quarantined", actor=program("t"), since=timezone.now(), code="x", reason="silent")
    action_of(pool)
    operator.get("/automation/chat")
    with django_assert_num_queries(20):
        operator.get("/automation/chat")
    with django_assert_num_queries(18):
        operator.get("/automation/chat?fragment=1")
    with django_assert_num_queries(11):
        operator.get("/automation")


def timeline(client: Client, query: str = "range=1h") -> dict[str, Any]:
    answer = client.get(f"/automation/chat/timeline?{query}")
    assert answer.status_code == 200, answer.content
    charts: dict[str, Any] = answer.json()
    return charts


def plan(at: datetime, mode: str = "act", **fields: Any) -> PlanRecord:
    figures = {"engines": 2, "target": 4, "demand": 2.5, "demand_ahead": 3.5}
    defaults = {"job": "scaling", "changes": True, "reasons": ADVICE["reasons"], "figures": figures, "plan": ADVICE}
    return PlanRecord.objects.create(
        pool="chat", at=at, mode=mode, outcome={"carried_out": mode == "act"}, **{**defaults, **fields}
    )


def test_timeline_shows_sizes_forecast_and_reasons(operator: Client, pool: Pool) -> None:
    at = timezone.now() - timedelta(minutes=10)
    plan(at)
    plan(at + timedelta(minutes=1), mode="advise")
    charts = timeline(operator)
    assert [point[1] for point in charts["desired"]] == [4, 2]
    assert charts["demand"][0] == [at.timestamp(), 2.5]
    assert charts["forecast"][0] == [at.timestamp() + 60, 3.5]
    assert (charts["target"], charts["band"][1], charts["roles"]) == (0.9, 1.2, [])
    first, second = charts["marks"]
    assert first["text"] == "Scaling: Add 2 engines. 71 % of 240 requests were on time."
    assert (first["kind"], first["label"], second["kind"]) == ("scaling", "+2", "advice")


def test_timeline_shows_actions_of_people(operator: Client, pool: Pool) -> None:
    send(operator, "freeze", why="a move")
    (mark,) = timeline(operator)["marks"]
    assert (mark["kind"], mark["text"]) == ("freeze", "Frozen by operator: a move.")


def test_timeline_shows_a_role_change_and_its_loads(operator: Client, pool: Pool) -> None:
    figures = {"prefill": 1, "decode": 2, "prefill_load": 0.9, "decode_load": 0.2, "imbalance": 0.63}
    role_changes = {"role_changes": [{"engine_id": "chat-1", "before": "decode", "after": "prefill"}], "reasons": []}
    plan(timezone.now() - timedelta(minutes=1), job="prefill_decode", figures=figures, plan=role_changes)
    charts = timeline(operator, "range=5m")
    assert charts["roles"][0][1:] == [1, 2, 0.9, 0.2, 0.63]
    assert charts["marks"][0]["label"] == "1 to prefill"
    assert "change e-0001 to prefill" in charts["marks"][0]["text"].lower()


def test_timeline_ends_at_the_requested_time(operator: Client, pool: Pool) -> None:
    old = timezone.now() - timedelta(hours=3)
    plan(old - timedelta(minutes=20))
    plan(timezone.now())
    charts = timeline(operator, f"range=1h&end={old.timestamp()}")
    assert charts["live"] is False
    assert len(charts["desired"]) == len(charts["marks"]) == 1


@pytest.mark.parametrize("query", ["range=1y", "range=1h&end=x", "range=1h&end=12"])
def test_invalid_range_is_rejected_with_a_message(operator: Client, pool: Pool, query: str) -> None:
    answer = operator.get(f"/automation/chat/timeline?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]
