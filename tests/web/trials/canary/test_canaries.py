"""Canaries under Trials: the form, the page with its charts and actions, holdbacks, and permissions."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.test import Client
from django.utils import timezone

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.policies.models.policy import Policy
from controlplane.trials.canary.evaluation import CanaryEvaluation, evaluation_of, plain, stored_evaluation
from controlplane.trials.canary.evidence import known_guardrails
from controlplane.trials.canary.lifecycle import start_canary
from controlplane.trials.models.canary import Canary
from controlplane.trials.models.holdback import Holdback
from planning.documents.guardrail_document import GuardrailDocument
from planning.facts.reason import Reason
from planning.trials.comparison import ArmSlice, GuardrailReading, compare
from planning.trials.guardrail_certainty import certainty
from tests.controlplane.trials.canary.scene import ACTOR, live_version, version
from tests.page_text import page_text
from tests.planning.arm_data import slices
from tests.web.role_clients import client_of, make_person, make_pool
from web.trials.canary.words import guard_lines

pytestmark = pytest.mark.django_db
FORCED = {"force": "1", "why": "urgent"}


@pytest.fixture
def pool() -> Pool:
    pool = make_pool()
    live_version(pool.policy)
    pool.refresh_from_db()
    return pool


@pytest.fixture
def canary(pool: Pool) -> Canary:
    """Return a canary with an evaluation."""
    made = start_canary(version(pool.policy, "round_robin", ttft_slo_s=4.0), steps=(0.1, 0.5), actor=ACTOR)
    seen = [(1000.0 + 2 * number, item) for number, item in enumerate(slices(1, 20, 20, 6, slower=4.0))]
    Canary.objects.filter(pk=made.pk).update(evaluation=plain(evaluated(seen)))
    made.refresh_from_db()
    return made


def evaluated(
    seen: list[tuple[float, ArmSlice]],
    guardrails: GuardrailDocument = GuardrailDocument(),  # noqa: B008
) -> CanaryEvaluation:
    comparison = compare([item for _, item in seen], guardrails)
    reasons = (Reason("by_hand", "No guardrail looks broken; ready for the next"),)
    return evaluation_of(timezone.now().timestamp(), "keep", reasons, comparison, seen)


def show(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    return page_text(answer)


def test_first_visit_shows_the_next_step(operator: Client) -> None:
    assert "No canary yet" in show(operator, "/trials/canaries")


def test_canary_is_started_from_a_draft(operator: Client, pool: Pool) -> None:
    number = version(pool.policy, "round_robin").number
    slug = pool.policy.slug
    link = f"/trials/canaries?new&amp;policy={slug}&amp;version={number}"
    assert link in show(operator, f"/policies/{slug}?draft={number}")
    page = show(operator, link.replace("&amp;", "&"))
    assert f'<option value="{number}" selected>v{number}, draft: round_robin</option>' in page
    form = {
        "policy": slug, "version": str(number), "steps": "2, 20 %", "min_dwell_s": "60", "advance": "steps",
        "late_more": "5", "failed_more": "1", "ttft_ratio": "1.5", "tail_ratio": "2", "why": "try",
    }  # fmt: skip
    answer = operator.post("/trials/canaries/start", form)
    made = Canary.objects.get()
    assert answer["Location"] == f"/trials/canaries/{made.key}"
    assert (made.steps, made.min_dwell_s, made.advance, made.why) == ([0.02, 0.2], 60.0, "steps", "try")
    assert (made.guardrails["late_more"], made.guardrails["ttft_ratio"]) == (0.05, 1.5)
    policy_page = show(operator, f"/policies/{slug}?draft={number}")
    assert f"v{number} is a running canary" in policy_page
    assert link not in policy_page
    rejected = operator.post("/trials/canaries/start", {**form, "steps": "50, x", "version": "1"})
    assert rejected.status_code == 422
    assert "Enter a number, not &#x27;x&#x27;." in page_text(rejected)


def test_form_shows_all_errors_together(operator: Client, pool: Pool) -> None:
    number = version(pool.policy, "round_robin").number
    form = {
        "policy": pool.policy.slug, "version": str(number), "steps": "50, 20", "min_dwell_s": "-1", "advance": "soon",
        "late_more": "abc", "failed_more": "700", "ttft_ratio": "0.5", "tail_ratio": "2",
    }  # fmt: skip
    page = page_text(operator.post("/trials/canaries/start", form))
    for words in (
        "Say why this canary starts",
        "increasing shares",
        "between 0 and 604800",
        "one of by_hand",
        "not &#x27;abc&#x27;",
        "&lt;= 1",
        "&gt;= 1",
    ):
        assert words in page
    assert not Canary.objects.exists()


def test_page_compares_both_arms_and_lists_what_is_not_tried(operator: Client, canary: Canary) -> None:
    page = show(operator, f"/trials/canaries/{canary.key}")
    assert "v2 serves 10\u202f% of sessions" in page
    assert "effective only on promotion: ttft_slo_s" in page
    assert page.count("<polyline") == 4
    assert page.count("<table") == 4
    assert "broken" in page
    assert " style=" not in page
    fragment = show(operator, f"/trials/canaries/{canary.key}?fragment")
    assert "<html" not in fragment
    assert f"{canary.policy.slug} v2" in show(operator, "/trials/canaries")


def test_promotion_without_the_required_approval_names_the_approvers(operator: Client, canary: Canary) -> None:
    Policy.objects.filter(pk=canary.policy_id).update(needs_approval=True)
    answer = operator.post(f"/trials/canaries/{canary.key}/promote", {"revision": "1", **FORCED})
    assert answer.status_code == 409
    assert "needs the approval of a second person" in page_text(answer)
    canary.refresh_from_db()
    assert canary.running


def test_actions_apply_only_to_the_displayed_revision(operator: Client, canary: Canary) -> None:
    path = f"/trials/canaries/{canary.key}"
    assert operator.post(f"{path}/step", {"revision": "7", **FORCED}).status_code == 409
    assert operator.post(f"{path}/step", {"revision": "1", **FORCED}).status_code == 302
    canary.refresh_from_db()
    assert canary.step == 1
    assert operator.post(f"{path}/abort", {"revision": "2", "why": "late"}).status_code == 302
    assert "v2 was aborted" in show(operator, path)
    assert operator.post(f"{path}/promote", {"revision": "3"}).status_code == 409
    assert operator.post(f"{path}/other", {"revision": "3"}).status_code == 404


def test_buttons_show_whether_there_is_evidence_and_ask_if_there_is_none(operator: Client, canary: Canary) -> None:
    Canary.objects.filter(pk=canary.pk).update(evaluation={}, min_dwell_s=298)
    path = f"/trials/canaries/{canary.key}"
    page = show(operator, path)
    assert re.search(r"Next step in 29[5-8]\u202fs, 40 requests</summary>", page)
    assert "Raise it to 50\u202f% of sessions without evidence?" in page
    for verb in ("step", "promote"):
        rejected = operator.post(f"{path}/{verb}", {"revision": "1"})
        assert rejected.status_code == 409
        assert "0 of at least 40 requests evaluated per version." in page_text(rejected)
        assert f'id="{verb}-menu" open' in page_text(rejected)
        unreasoned = operator.post(f"{path}/{verb}", {"revision": "1", "force": "1"})
        assert unreasoned.status_code == 422
        assert "Enter the reason for continuing without evidence." in page_text(unreasoned)
    canary.refresh_from_db()
    assert (canary.step, canary.running) == (0, True)


def test_next_step_with_evidence_takes_one_click(operator: Client, pool: Pool) -> None:
    wide = {"late_more": 0.2, "failed_more": 0.2, "ttft_ratio": 2.0, "tail_ratio": 3.0}
    made = start_canary(
        version(pool.policy, "round_robin"), steps=(0.1, 0.5), min_dwell_s=0.0, guardrails=wide, actor=ACTOR
    )
    seen = [(1000.0 + 2 * number, item) for number, item in enumerate(slices(1, 30, 60, 60))]
    Canary.objects.filter(pk=made.pk).update(evaluation=plain(evaluated(seen, GuardrailDocument(**wide))))
    page = show(operator, f"/trials/canaries/{made.key}")
    assert "All guardrails hold. Ready for the next step." in page
    assert "Next step: 50" in page
    assert "without evidence" not in page
    assert operator.post(f"/trials/canaries/{made.key}/step", {"revision": "1"}).status_code == 302


def test_undetermined_guardrail_shows_what_it_requires(canary: Canary) -> None:
    def line(difference: float, upper: float) -> dict[str, Any]:
        reading = GuardrailReading("late", 0.05, 0.05 + difference, difference, -upper, upper, 0.03, "fine")
        known = certainty(reading, requests=100, least=40, since_s=60.0)
        evaluation = stored_evaluation(canary.evaluation)
        assert evaluation is not None
        return guard_lines(msgspec.structs.replace(evaluation, readings=(reading,)), GuardrailDocument(), (known,))[0]

    assert (line(0.0, 0.06)["verdict"], line(0.0, 0.06)["note"]) == ("not yet known", "needs about 3\u202fmin more")
    assert "more requests are unlikely" in line(0.04, 0.09)["note"]
    holds = line(0.0, 0.02)
    assert (holds["verdict"], holds["note"]) == ("holds", "")
    assert float(holds["interval"]["upper"][:-1]) < float(holds["interval"]["limit"][:-1])


def test_promotion_requires_typing_the_name_of_the_pool_like_publishing(
    operator: Client, pool: Pool, canary: Canary
) -> None:
    url = "http://10.0.0.1:8000"
    Engine.objects.create(engine_id="e", pool=pool, name="e", url=url, connect_url=url, desired_state="ready")
    path = f"/trials/canaries/{canary.key}"
    assert "Type chat to publish v2" in show(operator, path)
    for typed, words in (("", "the field is empty."), ("other", "&quot;other&quot; does not match.")):
        answer = operator.post(f"{path}/promote", {"revision": "1", "confirm": typed})
        assert answer.status_code == 422
        assert f"Type chat to promote it: {words}" in page_text(answer)
    canary.refresh_from_db()
    assert canary.running
    assert operator.post(f"{path}/promote", {"revision": "1", "confirm": "chat", **FORCED}).status_code == 302
    canary.refresh_from_db()
    assert canary.state == "promoted"


def test_aborted_canary_marks_its_draft_and_shows_its_last_step(operator: Client, canary: Canary) -> None:
    assert "ended here" not in show(operator, f"/trials/canaries/{canary.key}")
    draft = f"/policies/{canary.policy.slug}?draft={canary.version.number}"
    assert 'class="step under-way" data-step="canary"' in show(operator, draft)
    assert operator.post(f"/trials/canaries/{canary.key}/abort", {"revision": "1"}).status_code == 302
    assert "ended here" in show(operator, f"/trials/canaries/{canary.key}")
    assert 'class="step against" data-step="canary"' in show(operator, draft)


def test_points_have_a_true_minus_and_zero_has_no_sign(canary: Canary) -> None:
    evaluation = stored_evaluation(canary.evaluation)
    assert evaluation is not None
    known = known_guardrails(evaluation, GuardrailDocument(), canary.step_at)
    words = " ".join(
        f"{line['difference']} {line['bounds']}" for line in guard_lines(evaluation, GuardrailDocument(), known)
    )
    assert "-" not in words
    assert "−" in words
    assert "+0.0" not in words


def test_viewer_sees_the_canary_without_actions(canary: Canary) -> None:
    viewer = client_of(make_person("viewer"))
    page = show(viewer, f"/trials/canaries/{canary.key}")
    assert "Abort" not in page
    assert viewer.post(f"/trials/canaries/{canary.key}/abort", {"revision": "1"}).status_code == 403
    assert client_of(make_person("nobody")).get(f"/trials/canaries/{canary.key}").status_code in (403, 404)


def test_pool_that_fell_back_is_shown_with_its_reason(operator: Client, pool: Pool) -> None:
    since = timezone.now() - timedelta(minutes=3)
    Holdback.objects.create(
        pool=pool, state="fallback", since=since, trial_id="t", share=1.0, reason="9 % of the policy is late"
    )
    page = show(operator, "/trials/canaries")
    assert "Fallback: simple rule serves all sessions" in page
    assert "9 % of the policy is late." in page


def test_pool_is_tried_with_a_share_and_compared_with_the_others(operator: Client, pool: Pool) -> None:
    fresh = Pool.objects.create(
        slug="fresh", name="Fresh", region=pool.region, served_model=pool.served_model, policy=pool.policy, weight=0
    )
    slug = pool.policy.slug
    page = show(operator, f"/trials/canaries?new&policy={slug}&version=pool:fresh")
    assert '<option value="pool:fresh" selected>Pool fresh, with the other pools of its model</option>' in page
    form = {
        "policy": slug, "version": "pool:fresh", "steps": "20", "min_dwell_s": "60", "advance": "by_hand",
        "late_more": "5", "failed_more": "1", "ttft_ratio": "1.5", "tail_ratio": "2", "why": "engine 0.9",
    }  # fmt: skip
    assert operator.post("/trials/canaries/start", {**form, "version": "pool:other"}).status_code == 422
    path = operator.post("/trials/canaries/start", form)["Location"]
    made = Canary.objects.get(pool=fresh)
    seen = [(1000.0 + 2 * number, item) for number, item in enumerate(slices(1, 20, 60, 20))]
    Canary.objects.filter(pk=made.pk).update(evaluation=plain(evaluated(seen)))
    page = show(operator, path)
    for words in ("Pool fresh serves 20\u202f% of sessions", "Other pools, raw", "Canary, fresh", "Share of requests"):
        assert words in page
    assert f"keep 20\u202f% of sessions in pool {fresh.slug}" in page.lower()
    assert "pool fresh" in show(operator, "/trials/canaries")
    assert "A pool is in a canary." in " ".join(show(operator, f"/policies/{slug}").split())
    assert operator.post(f"{path}/abort", {"revision": "1", "why": "late"}).status_code == 302
    assert "Pool fresh was aborted" in show(operator, path)


def test_abort_asks_why_with_its_effects(operator: Client, canary: Canary) -> None:
    page = show(operator, f"/trials/canaries/{canary.key}?ask=abort").replace("\u202f", " ")
    assert "Abort the canary of v2?" in page
    assert "10 % of sessions return to v1" in page
    assert "v2 on 10 % of sessions" in show(operator, "/policies").replace("\u202f", " ")
    assert "v2 on 10 % of sessions" in show(operator, "/").replace("\u202f", " ")
    assert 'title="Running canaries and shadows">1<' in show(operator, "/requests")
