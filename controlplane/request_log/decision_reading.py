"""Reads one decision in full: from its segment or, if it is not stored, from the memory of its gateway."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from controlplane.fleet.visibility import visible_engines, visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.request_log.decision_search import sent_as, visible_decisions
from controlplane.request_log.hindsight import Hindsight
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.recent_decisions import recent_decisions
from controlplane.request_log.store.segments import RecordGoneError, read_decision
from gateway.contracts.stored_decision import StoredDecision

MAX_ID = 128
OTHER_POOL = "another pool"
"""Replaces the name of a pool that the reader must not see."""


@dataclass(frozen=True, slots=True)
class FoundDecision:
    """A decision. `row` None: not stored (yet). `record` None: unreadable, for the reason in `gone`."""

    record: StoredDecision | None
    row: DecisionIndex | None
    gone: str = ""


def find_decision(actor: Actor, decision_id: str) -> FoundDecision | None:
    """Return the decision with this id, or the newest for this client's X-Request-Id, if the actor may see its pool."""
    if not decision_id or len(decision_id) > MAX_ID or "\x00" in decision_id:
        return None
    visible = visible_decisions(actor)
    row = visible.filter(decision_id=decision_id).first()
    if row is None:
        # Before the clients' ids: a decision that is not stored yet has this very id.
        live = _live(actor, decision_id)
        if live is not None:
            return FoundDecision(_as_seen(actor, live), None)
        row = visible.filter(sent_as(decision_id)).order_by("-at_ms", "-pk").first()
    if row is None:
        return None
    try:
        return FoundDecision(_as_seen(actor, read_decision(row)), row)
    except RecordGoneError as error:
        live = _live(actor, row.decision_id)
        return FoundDecision(_as_seen(actor, live) if live is not None else None, row, str(error))


def _as_seen(actor: Actor, record: StoredDecision) -> StoredDecision:
    """Return the record without names of other pools of its service, and of their engines, that the actor lacks."""
    story = record.service
    if story is None or not story.tried or may(actor, Role.VIEWER):
        return record
    pools = set(visible_pools(actor).values_list("slug", flat=True))
    engines = set(visible_engines(actor).values_list("engine_id", flat=True))
    tried = tuple((pool if pool in pools else OTHER_POOL, code) for pool, code in story.tried)
    attempts = tuple(engine_id for engine_id in record.attempts if engine_id in engines)
    return msgspec.structs.replace(record, service=msgspec.structs.replace(story, tried=tried), attempts=attempts)


def _live(actor: Actor, decision_id: str) -> StoredDecision | None:
    record = recent_decisions().get(decision_id)
    if record is None or not _may_see(actor, record.decision.pool_id):
        return None
    return Hindsight().judged(record)


def _may_see(actor: Actor, pool_id: str) -> bool:
    """Return whether the actor may see the pool. A deleted pool is visible only to actors who see all pools."""
    return may(actor, Role.VIEWER) or visible_pools(actor).filter(slug=pool_id).exists()
