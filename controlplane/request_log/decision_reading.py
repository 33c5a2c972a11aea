"""Reads one decision in full: from its segment or, if it is not stored, from the memory of its gateway."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.fleet.visibility import visible_pools
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
            return FoundDecision(live, None)
        row = visible.filter(sent_as(decision_id)).order_by("-at_ms", "-pk").first()
    if row is None:
        return None
    try:
        return FoundDecision(read_decision(row), row)
    except RecordGoneError as error:
        return FoundDecision(_live(actor, row.decision_id), row, str(error))


def _live(actor: Actor, decision_id: str) -> StoredDecision | None:
    record = recent_decisions().get(decision_id)
    if record is None or not _may_see(actor, record.decision.pool_id):
        return None
    return Hindsight().judged(record)


def _may_see(actor: Actor, pool_id: str) -> bool:
    """Return whether the actor may see the pool. A deleted pool is visible only to actors who see all pools."""
    return may(actor, Role.VIEWER) or visible_pools(actor).filter(slug=pool_id).exists()
