"""One decision in full: from its segment, or from the memory of the gateway in this process while it is not stored."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from controlplane.decision_store.shelf import RecordGoneError
from controlplane.decision_store.storage import decision_shelf
from controlplane.decision_story.story import RUNNING
from controlplane.models import DecisionIndex
from controlplane.recent_decisions import recent_decisions
from controlplane.services.actor import Actor
from controlplane.services.decision_search import visible_decisions
from controlplane.services.roles import visible_pools
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
        return FoundDecision(read_row(row), row)
    except RecordGoneError as error:
        return FoundDecision(_live(actor, decision_id), row, str(error))


def read_row(row: DecisionIndex) -> StoredDecision:
    """Return the record that a row points at; raises RecordGoneError."""
    record = decision_shelf().read(row.segment, row.offset, row.place)
    if record.decision.decision_id != row.decision_id:
        raise RecordGoneError(f"segment {row.segment} holds another record at {row.offset}")
    return record


def _live(actor: Actor, decision_id: str) -> StoredDecision | None:
    recent = recent_decisions()
    record = recent.get(decision_id) if recent is not None else None
    if record is None or not visible_pools(actor).filter(slug=record.decision.pool_id).exists():
        return None
    stored = DecisionRecorder(b"").stored(record, 1.0, 0, None)
    # The session's digest needs the fleet's secret, and is worth nothing before the record can be searched.
    return msgspec.structs.replace(stored, session="", outcome=record.outcome or RUNNING)
