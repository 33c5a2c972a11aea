"""Starts, steps, and promotes canaries. The module trials.canary.end aborts them, and the job trials.canary.job
evaluates them.

A canary tries a version of a policy in all of its pools, or one pool next to the other pools of its service. Both
affect all pools of the policy, so that all actions require the role in each pool.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from django.db import IntegrityError, models, transaction
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.platform import audit, recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.platform.snapshot_change import record_change
from controlplane.policies.document.problems import validated
from controlplane.policies.document.text import completed
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import StalePolicyError, publish_version
from controlplane.policies.roles import require_all_pools
from controlplane.trials.canary.end import CanaryOverError, audit_fields, changed, end, locked_running, pool_of
from controlplane.trials.canary.evidence import Evidence, require_evidence
from controlplane.trials.canary.pool_arms import ALONE
from controlplane.trials.canary.service_share import MAX_WEIGHT, kept_weight, service_problem
from controlplane.trials.lifecycle import forget_ended, visible_trials
from controlplane.trials.models.canary import Canary, CanaryState
from controlplane.trials.models.holdback import Holdback
from planning.documents.guardrail_document import GuardrailDocument
from routing.registry import pair_problem
from routing.values.prepared_struct import prepared

DEFAULT_STEPS = (0.05, 0.25, 0.5)
DEFAULT_DWELL_S = 300.0
ADVANCES = ("by_hand", "steps", "promote")
MAX_STEPS = 10
LONGEST_DWELL_S = 7 * 86_400.0
KEPT = 1000
"""Maximum number of ended canaries. The oldest are deleted first."""
_NO_WEIGHT = (
    f"With the other pools' weights, no integer weight up to {MAX_WEIGHT} gives this share. Change their weights."
)


def visible_canaries(actor: Actor) -> models.QuerySet[Canary]:
    """Return the canaries of policies with a visible pool. For a pool on trial, that pool must be visible."""
    canaries = Canary.objects.select_related("policy", "version", "against", "author", "pool")
    seen = models.Q(pool=None) | models.Q(pool__in=visible_pools(actor))
    return visible_trials(canaries.filter(seen), actor, "policy__pools").distinct()


def running_canary(policy: Policy) -> Canary | None:
    """Return the policy's running canary; None without one."""
    return Canary.objects.filter(policy=policy, state=CanaryState.RUNNING).select_related("version", "pool").first()


def start_canary(
    tried: PolicyVersion | Pool,
    *,
    actor: Actor,
    steps: Sequence[float] = DEFAULT_STEPS,
    min_dwell_s: float = DEFAULT_DWELL_S,
    advance: str = "by_hand",
    guardrails: Any = None,
    why: str = "",
) -> Canary:
    """Give a share of the sessions to a version, next to the live version, or to a pool of weight 0, next to other
    pools.

    Raises NotAllowedError, InvalidFieldsError, InvalidPolicyError, and CanaryOverError if another canary is running.
    """
    policy = Policy.objects.select_related("live_version").get(pk=tried.policy_id)
    require_all_pools(actor, policy)
    live = policy.live_version
    if live is None:
        raise problem("version", "No version is live yet for comparison; publish this one instead.")
    pool, version = (tried, live) if isinstance(tried, Pool) else (None, tried)
    wrong = course_problems(steps, min_dwell_s, advance, guardrails)
    wrong += _version_problems(version, live) if pool is None else _pool_problems(pool, () if wrong else steps)
    if wrong:
        raise InvalidFieldsError(wrong)
    limits = msgspec.convert(guardrails or {}, prepared(GuardrailDocument))
    if Holdback.objects.filter(pool__policy=policy, state__in=ALONE).exists():
        raise CanaryOverError(
            "A pool of this policy has fallen back to its simple rule; wait until the policy serves again."
        )
    now = timezone.now()
    canary = Canary(
        key=secrets.token_hex(8), policy=policy, version=version, against=live, pool=pool, step_at=now, started_at=now,
        steps=[float(step) for step in steps], min_dwell_s=min_dwell_s, advance=advance,
        guardrails=msgspec.to_builtins(limits), why=why[:200], author=actor.user, author_name=actor.name,
    )  # fmt: skip
    try:
        with transaction.atomic():
            canary.save(force_insert=True)
            audit.record_for(actor, "canary.start", canary, after=audit_fields(canary), why=why, pool=pool_of(canary))
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
    """Give the canary its next share. Raises NotAllowedError, StaleRevisionError, CanaryOverError.

    The CanaryOverError is an EvidenceMissingError if there is not enough evidence about the current step.
    """
    require_all_pools(actor, canary.policy)
    with transaction.atomic():
        stored = locked_running(canary, expected)
        if stored.step + 1 >= len(stored.steps):
            raise CanaryOverError("The canary is at its last step; promote or abort it.")
        now = timezone.now()
        waived = require_evidence(stored, evidence, why, now)
        going = {"step": stored.step + 1, "step_at": now}
        changed(stored, going, "canary.step", actor=actor, why=why, pool=pool_of(stored), waived=waived)
    return stored


def promote(
    canary: Canary,
    *,
    actor: Actor,
    expected: int | None = None,
    why: str = "",
    evidence: Evidence = Evidence.REQUIRED,
) -> Canary:
    """Publish the canary's version for all sessions. A pool on trial gets a weight that keeps its share.

    Raises NotAllowedError, StaleRevisionError, CanaryOverError (also as EvidenceMissingError), StalePolicyError,
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
        concerned = pool_of(stored)
        # Before the publish: a version that goes live ends a canary that still runs, as overtaken.
        end(stored, CanaryState.PROMOTED, "canary.promote", actor=actor, reason=reason, pool=concerned, waived=waived)
        if stored.pool is None:
            publish_version(stored.version, instead_of=live.number, actor=actor, why=reason[:200])
        else:
            _keep_share(stored.pool, stored.share, actor=actor, why=reason[:200])
    return stored


def _keep_share(pool: Pool, share: float, *, actor: Actor, why: str) -> None:
    weight = kept_weight(pool, share)
    if weight is None:
        raise CanaryOverError(_NO_WEIGHT)
    recorded_change.change(pool, {"weight": weight}, "pool.change", actor=actor, why=why)


def untried(canary_version: PolicyVersion, live: PolicyVersion) -> list[str]:
    """Return the changed parts of the version that take effect only after promotion."""
    ours, others = completed(canary_version.document), completed(live.document)
    return sorted(
        name for name in ours.keys() | others.keys() if ours.get(name) != others.get(name) and name != "placement"
    )


def forget_canaries(at_most: int = KEPT) -> int:
    """Delete the oldest ended canaries beyond `at_most`. Return how many."""
    return forget_ended(Canary, models.Q(state=CanaryState.RUNNING), at_most)


def course_problems(
    steps: Sequence[float], min_dwell_s: float, advance: str, guardrails: Any = None
) -> list[FieldProblem]:
    """Return all problems of a canary's requested steps and guardrails."""
    wrong = []
    rising = all(one < other for one, other in pairwise(steps))
    if not 1 <= len(steps) <= MAX_STEPS or not rising or any(not 0 < step < 1 for step in steps):
        wrong.append(
            FieldProblem(
                "steps", f"Enter 1 to {MAX_STEPS} increasing shares, each above 0 and below 1; promotion follows."
            )
        )
    if not 0 <= min_dwell_s <= LONGEST_DWELL_S:
        wrong.append(FieldProblem("min_dwell_s", f"Must be between 0 and {LONGEST_DWELL_S:.0f} seconds."))
    if advance not in ADVANCES:
        wrong.append(FieldProblem("advance", f"Must be one of {', '.join(ADVANCES)}."))
    return wrong + [fault for name, value in (guardrails or {}).items() if (fault := _guard_problem(name, value))]


def _guard_problem(name: str, value: Any) -> FieldProblem | None:
    try:
        msgspec.convert({name: value}, prepared(GuardrailDocument))
    except msgspec.ValidationError as error:
        return FieldProblem(f"guardrails.{name}", f"{error}.")
    return None


def _pool_problems(pool: Pool, steps: Sequence[float]) -> list[FieldProblem]:
    """Return why the pool cannot be tried. With `steps`, also return why their last share could not be kept."""
    if wrong := service_problem(pool):
        return [FieldProblem("pool", wrong)]
    return [FieldProblem("steps", _NO_WEIGHT)] if steps and kept_weight(pool, steps[-1]) is None else []


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
