"""Reads the release timelines of several versions of a policy in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q

from controlplane.platform.actor import Actor
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.approvals import approvals_of
from controlplane.policies.document.problems import problems_of
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import PUBLISH, ROLL_BACK
from controlplane.policies.release_timeline import Appointment, Passage, TimelineStep, VersionFacts, timeline_of
from controlplane.policies.scheduled_publishes import newest_schedules
from controlplane.policies.trials_of_version import SOURCES, TRIALS

_PROGRAM = "Headway"


def timelines_of(
    policy: Policy, versions: Sequence[PolicyVersion], actor: Actor | None
) -> dict[int, tuple[TimelineStep, ...]]:
    """Return each version's release timeline by version id. Without an actor, timelines contain no trials."""
    if not versions:
        return {}
    ways = tuple(way for way in TRIALS if way in SOURCES)
    trials = {way: SOURCES[way](actor, versions) if actor is not None else {} for way in ways}
    approvals, schedules = approvals_of(versions), newest_schedules(versions)
    began, ended = _passages(policy, versions)
    live = policy.live_version
    timelines = {}
    for version in versions:
        schedule = schedules.get(version.pk)
        facts = VersionFacts(
            number=version.number,
            author=version.author.get_username() if version.author else _PROGRAM,
            created_at=version.created_at,
            based_on=version.based_on,
            live_number=live.number if live else None,
            published_at=version.published_at,
            errors=len(problems_of(version.document)),
            needs_approval=policy.needs_approval,
            approvals=tuple((approval.person.get_username(), approval.at) for approval in approvals[version.pk]),
            ways=ways,
            trials={way: trials[way][version.pk] for way in ways if version.pk in trials[way]},
            appointment=None
            if schedule is None
            else Appointment(schedule.state, schedule.at, schedule.by_name, schedule.problem),
            went_live=began.get(version.number),
            successor=ended.get(version.number),
            copies=version.copies,
        )
        timelines[version.pk] = timeline_of(facts)
    return timelines


def _passages(policy: Policy, versions: Sequence[PolicyVersion]) -> tuple[dict[int, Passage], dict[int, Passage]]:
    """Return, by version number, how each version last went live and what replaced it, from the audit."""
    numbers = [version.number for version in versions if version.published_at is not None]
    if not numbers:
        return {}, {}
    events = AuditEvent.objects.filter(object_kind="policy", object_id=policy.slug, verb__in=(PUBLISH, ROLL_BACK))
    events = events.filter(Q(after__number__in=numbers) | Q(before__number__in=numbers)).order_by("at", "pk")
    began: dict[int, Passage] = {}
    ended: dict[int, Passage] = {}
    rows = events.values_list("at", "actor_name", "verb", "before__number", "after__number")
    for at, by, verb, before, after in rows:
        passage = Passage(at, by, after, verb == ROLL_BACK)
        began[after] = passage
        # It is live again, so nothing has replaced it.
        ended.pop(after, None)
        if before is not None:
            ended[before] = passage
    return began, ended
