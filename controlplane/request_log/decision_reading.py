"""One decision in full: from its segment, or from the memory of the gateway in this process while it is not stored."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.request_log.decision_search import visible_decisions
from controlplane.request_log.decision_story.story import RUNNING
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.recent_decisions import recent_decisions
from controlplane.request_log.store.segments import RecordGoneError, read_decision
from gateway.contracts.stored_decision import StoredDecision
from gateway.reports.decision_recorder import DecisionRecorder

MAX_ID = 64


@dataclass(frozen=True, slots=True)
class FoundDecision:
    """A decision; `row` None: it is not stored, or not yet. `record` None: it cannot be read, `gone` says why."""

    record: StoredDecision | None
    row: DecisionIndex | None
    gone: str = ""


def find_decision(actor: Actor, decision_id: str) -> FoundDecision | None:
    """Return the decision of this id, if it is known here and the actor may see its pool."""
    if not decision_id or len(decision_id) > MAX_ID or "\x00" in decision_id:
        return None
    row = visible_decisions(actor).filter(decision_id=decision_id).first()
    if row is None:
        live = _live(actor, decision_id)
        return FoundDecision(live, None) if live is not None else None
    try:
        return FoundDecision(read_decision(row), row)
    except RecordGoneError as error:
        return FoundDecision(_live(actor, decision_id), row, str(error))


def _live(actor: Actor, decision_id: str) -> StoredDecision | None:
    recent = recent_decisions()
    record = recent.get(decision_id) if recent is not None else None
    if record is None or not visible_pools(actor).filter(slug=record.decision.pool_id).exists():
        return None
    stored = DecisionRecorder(b"").stored(record, 1.0, 0, None)
    # The session's digest needs the fleet's secret, and is worth nothing before the record can be searched.
    return msgspec.structs.replace(stored, session="", outcome=record.outcome or RUNNING)
