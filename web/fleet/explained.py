"""A decision as the gateway's explain API explains it, made from its record."""

from __future__ import annotations

from controlplane.fleet.models.engine import Engine
from gateway.contracts.explanation import Explanation, explanation
from gateway.contracts.stored_decision import StoredDecision


def explained(record: StoredDecision) -> Explanation:
    """Return the record as the drawer shows it."""
    decision, pair = record.decision, record.decision.pair
    ids = [decision.engine_id, pair.engine_id if pair is not None else ""]
    return explanation(record, dict(Engine.objects.filter(engine_id__in=ids).values_list("engine_id", "name")))
