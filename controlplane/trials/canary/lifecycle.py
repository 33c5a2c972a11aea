"""Starts canaries, lets them take steps, promotes and aborts them. The job trials.canary.job looks after them.

A canary touches all pools of its policy, as a publish does, so that all its verbs need the role in each.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from django.db import IntegrityError, models, transaction
from django.utils import timezone

from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.platform.snapshot_change import record_change
from controlplane.policies.document.problems import validated
from controlplane.policies.document.text import completed
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import StalePolicyError, publish_version
from controlplane.policies.roles import only_pool, require_all_pools
from controlplane.trials.canary.end import CanaryOverError, changed, end, locked_running, told
from controlplane.trials.canary.evidence import Evidence, require_evidence
from controlplane.trials.canary.pool_arms import ALONE
from controlplane.trials.lifecycle import forget_ended, visible_trials
from controlplane.trials.models.canary import Canary, CanaryState
from controlplane.trials.models.control_slice import ControlSlice
from planning.documents.guardrail_document import GuardDocument
from routing.registry import pair_problem
from routing.values.prepared_struct import prepared

DEFAULT_STEPS = (0.05, 0.25, 0.5)
DEFAULT_DWELL_S = 300.0
ADVANCES = ("by_hand", "steps", "promote")
MAX_STEPS = 10
LONGEST_DWELL_S = 7 * 86_400.0
KEPT = 1000
"""Ended canaries that are kept; the oldest leave."""


def visible_canaries(actor: Actor) -> models.QuerySet[Canary]:
    """Return the canaries of policies whose pools the actor may see."""
    found = Canary.objects.select_related("policy", "version", "against", "author")
    return visible_trials(found, actor, "policy__pools").distinct()


def running_canary(policy: Policy) -> Canary | None:
    """Return the policy's canary, where one takes sessions."""
    return Canary.objects.filter(policy=policy, state=CanaryState.RUNNING).select_related("version").first()


def start_canary(
    version: PolicyVersion,
    *,
    actor: Actor,
    steps: Sequence[float] = DEFAULT_STEPS,
    min_dwell_s: float = DEFAULT_DWELL_S,
    advance: str = "by_hand",
    guards: Any = None,
    why: str = "",
) -> Canary:
    """Let the version place a share of the sessions of its policy's pools beside the live version, from now on.

    Raises NotAllowedError, InvalidFieldsError, InvalidPolicyError, and CanaryOverError where one runs already.
    """
    policy = Policy.objects.select_related("live_version").get(pk=version.policy_id)
    require_all_pools(actor, policy)
    live = policy.live_version
    if live is None:
        raise problem("version", "No version is live yet for comparison; publish this one instead.")
    if wrong := [*_version_problems(version, live), *course_problems(steps, min_dwell_s, advance, guards)]:
        raise InvalidFieldsError(wrong)
    limits = msgspec.convert(guards or {}, prepared(GuardDocument))
    if ControlSlice.objects.filter(pool__policy=policy, state__in=ALONE).exists():
        raise CanaryOverError(
            "A pool of this policy has fallen back to its simple rule; wait until the policy serves again."
        )
    now = timezone.now()
    canary = Canary(
        key=secrets.token_hex(8), policy=policy, version=version, against=live, steps=[float(each) for each in steps],
        step_at=now, started_at=now, min_dwell_s=min_dwell_s, advance=advance, guards=msgspec.to_builtins(limits),
        why=why[:200], author=actor.user, author_name=actor.name,
    )  # fmt: skip
    try:
        with transaction.atomic():
            canary.save(force_insert=True)
            audit.record(
                actor, "canary.start", "canary", canary.key, after=told(canary), why=why, pool=only_pool(policy)
            )
            record_change()
    except IntegrityError as error:
        raise CanaryOverError("This policy already has a running canary; promote or abort it first.") from error
    return canary


def take_step(
    canary: Canary,
    *,
    actor: Actor,
    expected: int | None = None,
    why: str = "",
    evidence: Evidence = Evidence.REQUIRED,
) -> Canary:
    """Give the canary its next share; raises NotAllowedError, StaleRevisionError, CanaryOverError.

    EvidenceMissingError is one of the latter: the step before is not known to do well.
    """
    require_all_pools(actor, canary.policy)
    with transaction.atomic():
        stored = locked_running(canary, expected)
        if stored.step + 1 >= len(stored.steps):
            raise CanaryOverError("The canary is at its last step; promote or abort it.")
        now = timezone.now()
        waived = require_evidence(stored, evidence, why, now)
        going = {"step": stored.step + 1, "step_at": now}
        changed(stored, going, "canary.step", actor=actor, why=why, pool=only_pool(stored.policy), waived=waived)
    return stored


def promote(
    canary: Canary,
    *,
    actor: Actor,
    expected: int | None = None,
    why: str = "",
    evidence: Evidence = Evidence.REQUIRED,
) -> Canary:
    """Publish the canary's version, so that all sessions follow it.

    Raises NotAllowedError, StaleRevisionError, CanaryOverError (as EvidenceMissingError too), StalePolicyError,
    NotApprovedError, InvalidPolicyError.
    """
    require_all_pools(actor, canary.policy)
    with transaction.atomic():
        stored = locked_running(canary, expected)
        live = Policy.objects.select_related("live_version").get(pk=stored.policy_id).live_version
        if live is None or live.pk != stored.against_id:
            raise StalePolicyError(stored.policy, live)
        waived = require_evidence(stored, evidence, why, timezone.now())
        reason = why or f"Promoted at {stored.share * 100:.3g} % of the sessions"
        pool = only_pool(stored.policy)
        end(stored, CanaryState.PROMOTED, "canary.promote", actor=actor, reason=reason, pool=pool, waived=waived)
        publish_version(stored.version, instead_of=live.number, actor=actor, why=reason[:200])
    return stored


def untried(canary_version: PolicyVersion, live: PolicyVersion) -> list[str]:
    """Return the parts of the version that differ from the live one and come into force only when it is promoted."""
    ours, others = completed(canary_version.document), completed(live.document)
    return sorted(
        name for name in ours.keys() | others.keys() if ours.get(name) != others.get(name) and name != "placement"
    )


def forget_canaries(at_most: int = KEPT) -> int:
    """Delete the oldest ended canaries beyond `at_most`; returns how many."""
    return forget_ended(Canary, models.Q(state=CanaryState.RUNNING), at_most)


def course_problems(steps: Sequence[float], min_dwell_s: float, advance: str, guards: Any = None) -> list[FieldProblem]:
    """Return all that is wrong with the course and the guards that a canary is asked to have."""
    wrong = []
    rising = all(one < other for one, other in pairwise(steps))
    if not 1 <= len(steps) <= MAX_STEPS or not rising or any(not 0 < each < 1 for each in steps):
        wrong.append(
            FieldProblem(
                "steps", f"Enter 1 to {MAX_STEPS} increasing shares, each above 0 and below 1; promotion follows."
            )
        )
    if not 0 <= min_dwell_s <= LONGEST_DWELL_S:
        wrong.append(FieldProblem("min_dwell_s", f"Must be between 0 and {LONGEST_DWELL_S:.0f} seconds."))
    if advance not in ADVANCES:
        wrong.append(FieldProblem("advance", f"Must be one of {', '.join(ADVANCES)}."))
    return wrong + [found for name, value in (guards or {}).items() if (found := _guard_problem(name, value))]


def _guard_problem(name: str, value: Any) -> FieldProblem | None:
    try:
        msgspec.convert({name: value}, prepared(GuardDocument))
    except msgspec.ValidationError as error:
        return FieldProblem(f"guards.{name}", f"{error}.")
    return None


def _version_problems(version: PolicyVersion, live: PolicyVersion) -> list[FieldProblem]:
    policy = validated(version.document)
    if version.pk == live.pk:
        return [FieldProblem("version", "Is already live.")]
    if version.routing_document["placement"] == live.routing_document["placement"]:
        differs = ", ".join(untried(version, live)) or "nothing"
        same = (
            f"Places requests as the live version does (it differs in: {differs}), so a canary cannot compare them. "
            "Run a what-if instead, or publish it."
        )
        return [FieldProblem("version", same)]
    if wrong := pair_problem(policy.placement.name, live.routing_document["order"]["name"]):
        return [FieldProblem("version", f"Its placement does not work with the live queue order: {wrong}")]
    return []
