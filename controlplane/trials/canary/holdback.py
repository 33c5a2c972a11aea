"""Turns a pool's control slice; each change of who serves is told to the audit and published."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any

import msgspec
from django.db import transaction

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.snapshot_change import record_change
from controlplane.trials.canary.end import end_running
from controlplane.trials.models.control_slice import ControlSlice, SliceState
from planning.trials.holdback import HoldbackMemory, HoldbackPlan
from routing.values.prepared_struct import prepared

_VERBS = {
    SliceState.OFF: "control_slice.off",
    SliceState.SLICE: "control_slice.keep",
    SliceState.FALLBACK: "control_slice.fall_back",
    SliceState.PROBING: "control_slice.try_again",
}


def control_slice(pool: Pool, at: datetime) -> ControlSlice:
    """Return the pool's slice as stored; a new one, not stored yet, where there is none."""
    found = ControlSlice.objects.filter(pool=pool).first()
    return found or ControlSlice(pool=pool, since=at, trial_id=secrets.token_hex(8))


def visible_slices(actor: Actor) -> list[ControlSlice]:
    """Return the slices of the pools that the actor may see, without those that are off."""
    found = ControlSlice.objects.exclude(state=SliceState.OFF).filter(pool__in=visible_pools(actor))
    return list(found.select_related("pool__policy__live_version").order_by("pool__slug"))


def memory_of(stored: ControlSlice) -> HoldbackMemory:
    """Return what the last look left."""
    return msgspec.convert(stored.memory, prepared(HoldbackMemory))


def turn(
    stored: ControlSlice,
    plan: HoldbackPlan,
    memory: HoldbackMemory,
    look: dict[str, Any],
    at: datetime,
    *,
    actor: Actor,
) -> None:
    """Store what a look came to. Where the share or who serves changes, the audit hears of it and gateways follow."""
    reason = "; ".join(each.text for each in plan.reasons)[:400]
    before = {"state": stored.state, "share": stored.share}
    after = {"state": memory.state, "share": plan.share}
    with transaction.atomic():
        stored.memory, stored.look, stored.share = msgspec.to_builtins(memory), look, plan.share
        if before != after:
            stored.state, stored.since, stored.reason = SliceState(memory.state), at, reason
        stored.save()
        if before == after:
            return
        pool = stored.pool
        verb = _VERBS[SliceState(memory.state)]
        audit.tell(actor, verb, pool, before=before, after=after, why=reason)
        if memory.state == SliceState.FALLBACK.value:
            text = f"Pool {pool.slug} fell back to its simple rule"
            end_running(pool.policy, text, actor=actor, pool=pool.slug)
        record_change()
