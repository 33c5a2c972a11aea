"""The release timeline of a version: pure steps, and the facts behind them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import CONSOLE, Actor, person, program
from controlplane.platform.role import Role
from controlplane.policies.approvals import approve
from controlplane.policies.models.policy import Policy
from controlplane.policies.publish import change_policy, draft, publish_version, roll_back
from controlplane.policies.release_timeline import Appointment, Passage, VersionFacts, timeline_of
from controlplane.policies.release_timeline_facts import timelines_of
from controlplane.policies.scheduled_publishes import schedule_publish
from controlplane.policies.trials_of_version import Trial
from controlplane.trials.models.whatif import WhatIf
from controlplane.trials.whatif.result import Difference, Side, Spread, WhatIfResult
from gateway.bus.bus import Bus

ACTOR = program("test")
AT = datetime(2027, 1, 31, 9, tzinfo=UTC)
DRAFT = VersionFacts(
    number=3, author="ann", created_at=AT, based_on=2, live_number=2, published_at=None, errors=0,
    needs_approval=False, ways=("what_if", "canary"),
)  # fmt: skip
LIVE = replace(DRAFT, live_number=3, published_at=AT, went_live=Passage(AT, "ben", 3, rolled_back=False))


def states(facts: VersionFacts) -> str:
    return " ".join(f"{step.step}:{step.state}" for step in timeline_of(facts))


def test_new_draft_has_no_completed_step() -> None:
    assert states(DRAFT) == (
        "drafted:done validated:done what_if:next canary:next approved:skipped scheduled:skipped live:next "
        "replaced:skipped"
    )
    assert timeline_of(DRAFT)[-2].words == "would replace v2"


def test_finished_trials_are_done_and_running_ones_are_current() -> None:
    trials = {
        "what_if": Trial(running=False, at=AT, by="ann", words="Better on lateness than v2", address="/x/7"),
        "canary": Trial(running=True, at=AT, by="ben", words="at 5 %"),
    }
    steps = {step.step: step for step in timeline_of(replace(DRAFT, trials=trials))}
    assert (steps["what_if"].state, steps["what_if"].address) == ("done", "/x/7")
    assert (steps["canary"].state, steps["canary"].words) == ("now", "at 5 %")


def test_approval_is_next_until_it_is_given() -> None:
    asked = replace(DRAFT, needs_approval=True)
    assert "approved:next" in states(asked)
    assert "approved:done" in states(replace(asked, approvals=(("ben", AT),)))


@pytest.mark.parametrize(
    ("state", "step"),
    [("waiting", "now"), ("published", "done"), ("failed", "skipped"), ("cancelled", "skipped")],
)
def test_scheduled_publish_is_current_while_it_waits(state: str, step: str) -> None:
    assert f"scheduled:{step}" in states(replace(DRAFT, appointment=Appointment(state, AT, "ann", "why")))


def test_live_version_is_at_its_step_and_skipped_steps_are_marked() -> None:
    assert states(LIVE) == (
        "drafted:done validated:done what_if:skipped canary:skipped approved:skipped scheduled:skipped live:now "
        "replaced:next"
    )


def test_replaced_version_names_its_successor_and_a_rollback() -> None:
    gone = replace(LIVE, live_number=4, successor=Passage(AT, "eve", 4, rolled_back=False))
    assert states(gone).endswith("live:done replaced:done")
    assert timeline_of(gone)[-1].words == "by v4"
    back = replace(gone, successor=Passage(AT, "eve", 4, rolled_back=True))
    assert states(back).endswith("live:done rolled_back:done")


def test_skipped_and_invalid_drafts_are_marked() -> None:
    assert "what_if:skipped" in states(replace(DRAFT, live_number=4))
    assert "live:skipped" in states(replace(DRAFT, live_number=4))
    wrong = timeline_of(replace(DRAFT, errors=1))[1]
    assert (wrong.state, wrong.words) == ("now", "1 error")


@pytest.fixture
def ann(pool: Pool, bus: Bus) -> Actor:
    user = User.objects.create(username="ann")
    RoleGrant.objects.create(user=user, role=Role.OPERATOR)
    return person(user, via=CONSOLE)


def result() -> WhatIfResult:
    """Return an answer in which every seed has more requests on time."""
    one, two, more = Spread(0.9, 0.9, 0.9), Spread(0.95, 0.95, 0.95), Spread(0.05, 0.05, 0.05)
    side = Side(figures={}, ttft_quantiles_s=[], answered_share=1.0)
    difference = Difference(figure="on_time_share", base=one, draft=two, change=more, better=5, worse=0)
    return WhatIfResult(
        requests=100, counted=90, seeds=5, engines=2, engine_model="reference", costs="written", kv_tokens=None,
        ttft_slo_s=5.0, base=side, draft=side, differences=[difference], bands=[],
    )  # fmt: skip


def whole_story(policy: Policy, pool: Pool, ann: Actor) -> None:
    """Store versions 1 to 4: live, live after what-if and approval, skipped and scheduled, rolled back to 1."""
    publish_version(draft(policy, {}, actor=ann), instead_of=None, actor=ann)
    change_policy(policy, {"needs_approval": True}, actor=ann)
    second = draft(policy, {"ttft_slo_s": 2.0}, actor=ACTOR)
    WhatIf.objects.create(
        pool=pool, recording_name="r", draft=second, base=policy.versions.get(number=1), conditions={},
        result=msgspec.to_builtins(result()), author=ann.user,
    )  # fmt: skip
    approve(second, actor=ann)
    publish_version(second, instead_of=1, actor=ACTOR)
    third = draft(policy, {"ttft_slo_s": 3.0}, actor=ann)
    schedule_publish(third, timezone.now() + timedelta(hours=1), instead_of=2, actor=ann)
    roll_back(policy, 1, instead_of=2, actor=ann)


@pytest.mark.django_db
def test_release_timelines_are_read_from_stored_data(policy: Policy, pool: Pool, ann: Actor) -> None:
    whole_story(policy, pool, ann)
    policy = Policy.objects.select_related("live_version").get()
    versions = list(policy.versions.select_related("policy", "author").order_by("number"))
    timelines = timelines_of(policy, versions, ann)
    first, second, third, fourth = ({step.step: step for step in timelines[version.pk]} for version in versions)
    assert (first["replaced"].words, first["live"].by) == ("by v2", "ann")
    assert second["what_if"].words == "Better on the on-time share than v1"
    assert second["what_if"].address.startswith("/trials/whatif/")
    assert (second["approved"].by, second["rolled_back"].words, second["rolled_back"].by) == ("ann", "by v4", "ann")
    assert (third["scheduled"].state, third["live"].state) == ("skipped", "skipped")
    assert "v4 went live before" in third["scheduled"].words
    assert (fourth["live"].state, fourth["live"].words) == ("now", "rolled back")
    assert (third["drafted"].words, fourth["drafted"].words) == ("from v2", "copies v1")


@pytest.mark.django_db
def test_trials_of_invisible_pools_are_hidden(policy: Policy, pool: Pool, ann: Actor) -> None:
    whole_story(policy, pool, ann)
    second = policy.versions.get(number=2)
    stranger = person(User.objects.create(username="zoe"), via=CONSOLE)
    for actor in (stranger, None):
        steps = {step.step: step for step in timelines_of(Policy.objects.get(), [second], actor)[second.pk]}
        assert (steps["what_if"].state, steps["what_if"].address) == ("skipped", "")


@pytest.mark.django_db
def test_more_versions_take_no_more_queries(
    policy: Policy, pool: Pool, ann: Actor, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    whole_story(policy, pool, ann)
    for _ in range(20):
        draft(policy, {}, actor=ACTOR)
    policy = Policy.objects.select_related("live_version").get()
    versions = list(policy.versions.select_related("policy", "author"))
    with django_assert_max_num_queries(10):
        assert len(timelines_of(policy, versions, ann)) == 24
