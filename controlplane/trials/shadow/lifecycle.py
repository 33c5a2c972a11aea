"""Starts and ends shadows: drafts that decide next to a pool's live policy, without effect."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import uuid4

import msgspec
from django.db import IntegrityError, models, transaction
from django.utils import timezone

from controlplane.fleet.models.pool import Pool, PoolMode
from controlplane.platform import audit
from controlplane.platform.actor import Actor, program
from controlplane.platform.audit_values import audit_values
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import InvalidFieldsError, check_fields, problem
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from controlplane.platform.snapshot_change import record_change
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.upgrade import live_routing_of, routing_of
from controlplane.trials.lifecycle import forget_ended, visible_trials
from controlplane.trials.models.shadow import Shadow, ShadowState
from routing.policy.schema_versions import SchemaError
from routing.registry import stage_problems
from routing.trials.shadow import shadow_problem

ACTOR = program("shadows")
MOST_MINUTES = 7 * 24 * 60
KEPT = 500
"""Maximum number of stored shadows. The oldest are deleted first."""


class ShadowRunsError(ConflictError):
    """The pool already has a shadow, which an operator has to end first."""


class ShadowEndedError(ConflictError):
    """The shadow has already ended."""


def visible_shadows(actor: Actor) -> models.QuerySet[Shadow]:
    """Return the shadows of the pools that the actor may see."""
    shadows = Shadow.objects.select_related("pool__policy", "draft", "base", "author").prefetch_related("parts")
    return visible_trials(shadows, actor)


def start_shadow(
    pool: Pool, draft: PolicyVersion, *, minutes: int = 60, max_per_s: int = 50, actor: Actor, why: str = ""
) -> Shadow:
    """Make the draft decide next to the pool's live version for some minutes, on a limited rate of requests.

    In an observing pool, the new shadow replaces a running one. Raises NotAllowedError unless the actor operates the
    pool, InvalidFieldsError, and ShadowRunsError if another shadow is running.
    """
    require(actor, Role.OPERATOR, pool)
    running = Shadow.objects.filter(pool=pool, state=ShadowState.RUNNING).first()
    observed = pool.mode == PoolMode.OBSERVE
    if running is not None and not observed:
        raise _runs(pool)
    base = pool.policy.live_version
    if base is None:
        raise problem("draft", "No version is live yet for comparison; publish one first.")
    _check(pool, draft, None if observed else base)
    if not 1 <= minutes <= MOST_MINUTES:
        raise problem("minutes", f"Must be from 1 to {MOST_MINUTES} (a week).")
    now = timezone.now()
    shadow = Shadow(
        key=uuid4().hex, pool=pool, draft=draft, base=base, observed=observed, max_per_s=max_per_s, author=actor.user,
        created_at=now, until=now + timedelta(minutes=minutes),
    )  # fmt: skip
    try:
        with transaction.atomic():
            if running is not None:
                # First: a pool has one running shadow (shadow_one_per_pool).
                _end(running, ShadowState.ENDED, f"v{draft.number} replaced it.", actor=actor)
            check_fields(shadow)
            shadow.save(force_insert=True)
            audit.record_for(actor, "shadow.start", shadow, after=audit_values(shadow), why=why)
            record_change()
    except IntegrityError as error:
        # Another start was faster by a moment.
        raise _runs(pool) from error
    return shadow


def stop_shadow(shadow: Shadow, *, actor: Actor, why: str = "") -> Shadow:
    """End the shadow now and return it. Raises NotAllowedError, and ShadowEndedError if it has already ended."""
    require(actor, Role.OPERATOR, shadow.pool)
    if not _end(shadow, ShadowState.ENDED, f"Stopped by {actor.name}.", actor=actor, why=why):
        raise ShadowEndedError("This shadow has already ended.")
    shadow.refresh_from_db()
    return shadow


def end_due(now: datetime) -> int:
    """End the shadows that are due or whose base is no longer live. Return how many."""
    ended = 0
    for shadow in Shadow.objects.filter(state=ShadowState.RUNNING).select_related("pool__policy__live_version"):
        live = shadow.pool.policy.live_version
        if shadow.observed != (shadow.pool.mode == PoolMode.OBSERVE):
            does = "only observes" if shadow.pool.mode == PoolMode.OBSERVE else "routes requests"
            ended += _end(shadow, ShadowState.ENDED, f"The pool {does} now.", actor=ACTOR)
        elif live is None or live.pk != shadow.base_id:
            went = f"v{live.number} went live" if live is not None else "No version is live now"
            ended += _end(shadow, ShadowState.ENDED, f"{went}, so the comparison ended.", actor=ACTOR)
        elif now >= shadow.until:
            ended += _end(shadow, ShadowState.ENDED, "It reached its time limit.", actor=ACTOR)
    return ended


def observe_pools() -> int:
    """Start a shadow of the live policy in each pool that only observes. Return how many were started."""
    idle = Pool.objects.filter(mode=PoolMode.OBSERVE, policy__live_version__isnull=False)
    idle = idle.exclude(shadows__state=ShadowState.RUNNING).select_related("policy__live_version")
    begun = 0
    for pool in idle:
        live = pool.policy.live_version
        try:
            if live is not None:
                start_shadow(pool, live, minutes=MOST_MINUTES, actor=ACTOR, why="the pool only observes")
                begun += 1
        except (InvalidFieldsError, ShadowRunsError):
            # A policy with pull scheduling cannot be compared choice by choice; its page says so.
            continue
    return begun


def fail_shadow(shadow: Shadow, reason: str) -> bool:
    """End the shadow because a gateway could not continue it. Return whether it was running."""
    return _end(shadow, ShadowState.FAILED, reason[:300], actor=ACTOR)


def forget_shadows(at_most: int = KEPT) -> int:
    """Delete the oldest shadows beyond `at_most`, but never a running one. Return how many."""
    return forget_ended(Shadow, models.Q(state=ShadowState.RUNNING), at_most)


def _check(pool: Pool, draft: PolicyVersion, base: PolicyVersion | None) -> None:
    """Raise InvalidFieldsError if the draft cannot be compared with the base (None: with another router's choices)."""
    if draft.policy_id != pool.policy_id:
        raise problem("draft", f"Is not a version of {pool.policy.slug}, the policy of pool {pool.slug}.")
    if base is not None and draft.pk == base.pk:
        raise problem("draft", f"v{base.number} is the live version; choose another one.")
    try:
        # Without a base the draft is the pool's own policy; next to a base it is judged by its document.
        policy = live_routing_of(draft) if base is None else routing_of(draft)
        live = None if base is None else live_routing_of(base)
    except (SchemaError, msgspec.ValidationError) as error:
        raise problem("draft", f"Is not valid in this release: {error}") from error
    for fault in (*stage_problems(policy), shadow_problem(live, policy)):
        if fault:
            raise problem("draft", fault)


def _end(shadow: Shadow, state: ShadowState, reason: str, *, actor: Actor, why: str = "") -> bool:
    with transaction.atomic():
        changed = Shadow.objects.filter(pk=shadow.pk, state=ShadowState.RUNNING).update(
            state=state, reason=reason, ended_at=timezone.now()
        )
        if changed:
            before, after = {"state": ShadowState.RUNNING.value}, {"state": state.value, "reason": reason}
            verb = "shadow.fail" if state == ShadowState.FAILED else "shadow.stop"
            audit.record_for(actor, verb, shadow, before=before, after=after, why=why)
            record_change()
    return bool(changed)


def _runs(pool: Pool) -> ShadowRunsError:
    return ShadowRunsError(f"Pool {pool.slug} already has a shadow; stop it first, or wait until it ends.")
