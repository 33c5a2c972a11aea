"""Proposals: one per pool, rejected ones do not return, and the red button."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from controlplane.access.models.role_grant import RoleGrant
from controlplane.advice.evidence import cost_of_being_wrong, evidence_of, what_would_change_it
from controlplane.advice.models.advice_proposal import AdvicePrediction, AdviceProposal, ProposalState
from controlplane.advice.proposals import (
    ADVISER,
    PROPOSALS,
    TRIALS,
    ProposalError,
    attention_counts,
    effective_mode,
    forget_proposals,
    reject,
    stop_autopilot,
    try_in_canary,
    try_in_shadow,
)
from controlplane.advice.search_job import search_task
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import CONSOLE, person
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError
from controlplane.policies.publish import delete_draft
from controlplane.trials.models.canary import Canary, CanaryState
from controlplane.trials.models.shadow import Shadow, ShadowState
from gateway.bus.bus import Bus
from tests.controlplane.advice.scene import ACTOR, BEGIN, advice_with, live_pool, moment, proposed, searched_for

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def live(pool: Pool, bus: Bus) -> Pool:
    return live_pool(pool)


def test_a_proposal_is_a_draft_with_its_evidence_and_an_audit_event(live: Pool) -> None:
    made = proposed(live)
    assert made.version is not None
    assert made.version.routing_document["placement"]["name"] == "least_cost"
    assert made.version.automation_document == made.base.automation_document
    assert (made.version.author, made.version.published_at) == (None, None)
    evidence = evidence_of(made.evidence)
    assert [item.use for item in evidence.windows] == ["search"] * 2 + ["prediction"] * 2 + ["check"]
    assert evidence.windows[0].begins_at == BEGIN
    assert [group.group for group in evidence.worse] == ["tenant acme", "longest quarter of prompts"]
    costs, minds = cost_of_being_wrong(evidence), list(what_would_change_it(evidence))
    assert "no more late requests" in costs[0]
    assert any("TTFT, mean: a change worse than" in line for line in minds)
    event = AuditEvent.objects.get(verb="advice.propose")
    assert (event.actor_name, event.via, event.pool_slug) == ("adviser", "program", "chat")
    assert event.why == f"On the evidence of proposal {made.pk}"


def test_the_database_has_one_unsettled_proposal_per_pool(live: Pool) -> None:
    made = proposed(live)
    made.pk = None
    with pytest.raises(IntegrityError), transaction.atomic():
        made.save(force_insert=True)


def test_a_newer_search_supersedes_and_an_abstention_withdraws(live: Pool) -> None:
    first = proposed(live)
    second = proposed(live, end=BEGIN + 9000)
    first.refresh_from_db()
    assert (first.state, first.version) == (ProposalState.SUPERSEDED, None)
    assert second.pk != first.pk
    outcome = searched_for(live, advice_with(None), end=BEGIN + 20_000)
    second.refresh_from_db()
    assert second.state == ProposalState.WITHDRAWN
    assert "do not confirm" in second.reason
    abstained = AdviceProposal.objects.get(pk=outcome["proposal"])
    assert (abstained.state, abstained.document) == (ProposalState.ABSTAINED, {})
    assert "not confirmed" in abstained.reason
    assert live.policy.versions.count() == 1


def test_a_rejected_proposal_returns_only_with_new_evidence(live: Pool) -> None:
    made = proposed(live)
    with pytest.raises(InvalidFieldsError):
        reject(made, actor=ACTOR)
    reject(made, actor=ACTOR, why="The night is not typical.")
    # The same run again, as a retry of its job would do.
    assert "rejected before" in searched_for(live)["summary"]
    assert not AdviceProposal.objects.filter(state=ProposalState.OPEN).exists()
    # The next search reads only what was recorded since.
    until = made.evidence_until
    assert search_task(live, moment(BEGIN + 9000)).begin == until.timestamp()
    assert proposed(live, end=BEGIN + 9000).digest != made.digest
    with pytest.raises(ProposalError):
        reject(made, actor=ACTOR, why="again")


def test_a_search_against_a_former_version_stores_nothing(live: Pool) -> None:
    from controlplane.advice.search_child import SearchResult
    from controlplane.advice.search_job import store_result
    from tests.controlplane.advice.scene import task_of

    task = task_of(live)
    after = live_pool(live, {"placement": {"name": "least_loaded"}})
    outcome = store_result(after, task, SearchResult(advice=advice_with(), begins_at=BEGIN))
    assert "no longer live" in outcome["summary"]
    assert not AdviceProposal.objects.exists()


def test_ranges_that_were_too_narrow_widen_and_may_end_the_proposal(live: Pool) -> None:
    others = [AdviceProposal.objects.create(
        pool=live, base=live.policy.live_version, state=ProposalState.SUPERSEDED, evidence={}, digest=str(number),
        evidence_until=moment(BEGIN), created_at=moment(BEGIN),
    ) for number in range(25)]  # fmt: skip
    for other in others:
        AdvicePrediction.objects.create(
            pool=live, proposal=other, objective="on_time", predicted=0.1, low=0.09, high=0.11, measured=0.14,
            at=moment(BEGIN),
        )  # fmt: skip
    outcome = searched_for(live, advice_with(gain=0.05, half=0.04))
    abstained = AdviceProposal.objects.get(pk=outcome["proposal"])
    assert abstained.state == ProposalState.ABSTAINED
    assert "4.0 times as wide" in abstained.reason
    assert evidence_of(abstained.evidence).factor == pytest.approx(4.0)


def test_a_person_tries_it_in_a_shadow_and_in_a_canary(live: Pool) -> None:
    made = proposed(live)
    shadow = try_in_shadow(made, actor=ACTOR).shadow
    assert shadow is not None
    assert shadow.draft == made.version
    made.refresh_from_db()
    with pytest.raises(StaleRevisionError):
        try_in_canary(made, actor=ACTOR, expected=made.revision - 1)
    made = try_in_canary(made, actor=ACTOR, expected=made.revision)
    assert made.state == ProposalState.IN_CANARY
    assert made.canary is not None
    assert (made.canary.version, made.canary.advance) == (made.version, "steps")
    with pytest.raises(ProposalError, match="Abort the canary"):
        reject(made, actor=ACTOR, why="no")
    assert "on trial" in searched_for(live, end=BEGIN + 9000)["summary"]


def test_a_deleted_draft_leaves_the_proposal(live: Pool) -> None:
    made = proposed(live)
    assert made.version is not None
    delete_draft(made.version, actor=ACTOR)
    made.refresh_from_db()
    assert made.version is None
    with pytest.raises(ProposalError, match="deleted"):
        try_in_canary(made, actor=ACTOR)


def test_the_lowest_mode_of_the_policys_pools_applies(live: Pool) -> None:
    live.advice = "promote"
    other = Pool(advice="canary")
    assert effective_mode([live]) == "promote"
    assert effective_mode([live, other]) == "canary"
    assert effective_mode([live, other, Pool(advice="off")]) == "off"


def test_the_red_button_stops_every_autopilot_and_the_advisers_trials(live: Pool) -> None:
    Pool.objects.filter(pk=live.pk).update(advice="promote")
    made = proposed(live)
    try_in_shadow(made, actor=ADVISER)
    try_in_canary(AdviceProposal.objects.get(pk=made.pk), actor=ADVISER)
    assert attention_counts(ACTOR) == {TRIALS: 2, PROPOSALS: 1}
    assert stop_autopilot(actor=ACTOR, why="an incident") == ["chat"]
    made.refresh_from_db()
    assert Pool.objects.get(pk=live.pk).advice == "propose"
    assert Canary.objects.get().state == CanaryState.ABORTED
    assert (made.state, made.reason) == (ProposalState.WITHDRAWN, "an incident")
    assert {"advice.stop", "advice.stop_all", "canary.abort", "advice.withdraw"} <= set(
        AuditEvent.objects.values_list("verb", flat=True)
    )


def test_the_red_button_leaves_the_trials_of_people(live: Pool) -> None:
    made = try_in_canary(proposed(live), actor=ACTOR)
    assert stop_autopilot(actor=ACTOR) == []
    assert made.canary is not None
    assert Canary.objects.get(pk=made.canary.pk).running


def test_the_red_button_ends_a_shadow_before_its_canary(live: Pool) -> None:
    try_in_shadow(proposed(live), actor=ADVISER)
    stop_autopilot(actor=ACTOR)
    assert Shadow.objects.get().state == ShadowState.ENDED


def test_operators_of_other_pools_may_not(live: Pool) -> None:
    made, stranger = proposed(live), User.objects.create(username="stranger")
    RoleGrant.objects.create(user=stranger, role=Role.VIEWER, pool=live)
    actor = person(stranger, via=CONSOLE)
    for act in (
        lambda: reject(made, actor=actor, why="no"),
        lambda: try_in_shadow(made, actor=actor),
        lambda: try_in_canary(made, actor=actor),
        lambda: stop_autopilot(actor=actor),
    ):
        with pytest.raises(NotAllowedError):
            act()


def test_old_settled_proposals_are_forgotten_and_open_ones_stay(live: Pool) -> None:
    for hour in range(4):
        proposed(live, end=BEGIN + 9000 * (hour + 1))
    assert forget_proposals(at_most=2) == 1
    assert AdviceProposal.objects.filter(state=ProposalState.OPEN).count() == 1
