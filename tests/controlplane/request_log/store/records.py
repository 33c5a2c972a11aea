"""Records of generated decisions."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import msgspec

from controlplane.request_log.store.segments import StoredCounts, store
from gateway.contracts.regret import Course, RegretOption, regret
from gateway.contracts.request_batch import encode_batch, request_batch
from gateway.contracts.stored_decision import Known, StoredDecision
from routing.cost.cost_model import PrefillCost
from routing.values import reasons
from routing.values.decision import Candidate, Decision
from tests.gateway.ended_requests import row_of

START = 1_800_000_000.0
CHOSEN = Candidate("engine-17", 9216, 2.86, 0.30, 2.86 + 8 * 0.30, 18)
OTHER = Candidate("engine-04", 4608, 0.41, 0.72, 0.41 + 8 * 0.72, 9)


def decision(name: str, **fields: Any) -> Decision:
    """Return the example decision of UX.md, with changed fields."""
    known: dict[str, Any] = {
        "decision_id": name, "pool_id": "pool-a", "engine_id": "engine-17", "incarnation": 1,
        "placement": "least_cost", "order": "fifo", "policy_version": 41, "reason": reasons.LEAST_COST,
        "prompt_tokens": 11_904, "hit_tokens": 9216, "wait_s": 2.86, "compute_s": 0.30, "decided_s": 100.0,
        "queued_s": 3.36, "candidates": (CHOSEN, OTHER),
    }  # fmt: skip
    return Decision(**{**known, **fields})


def stored(name: str = "0199f3c2-7d41-7c0e-8000-000000000001", at: float = START, **fields: Any) -> StoredDecision:
    """Return the record of that decision: late by 0.47 s, with 3072 fewer hit tokens than predicted."""
    inner = {key: fields.pop(key) for key in list(fields) if key in Decision.__struct_fields__}
    course = Course(ttft_s=3.97, queued_s=3.36, compute_s=0.61, hit_tokens=6144, view_age_s=0.062)
    options = [
        RegretOption(CHOSEN.engine_id, CHOSEN.hit_tokens, CHOSEN.wait_s, CHOSEN.compute_s),
        RegretOption(OTHER.engine_id, OTHER.hit_tokens, OTHER.wait_s, OTHER.compute_s, 0.11),
    ]
    made = decision(name, **inner)
    known: dict[str, Any] = {
        **row_of(made), "decision": made, "arrived_at": at, "region": "region-a", "served_model": "chat-70b",
        "tenant_id": "acme", "session": "81f0c2a4b6d8", "key_source": "tokenized", "ttft_slo_s": 3.5,
        "attempts": ("engine-17",), "outcome": "completed", "late": True, "dispatched_after_s": 3.36,
        "first_token_after_s": 3.97, "finished_after_s": 14.2, "believed_tokens": 9216, "cached_tokens": 6144,
        "output_tokens": 318, "block_tokens": 512, "mismatch": "late_event", "engines": 20,
        "known": (Known("engine-17", "e-17", "exact", 0.062, 0.009), Known("engine-04", "e-04", "exact", 0.048, 0.02)),
        "cost": PrefillCost(0.01, 8e-5, 2e-9, 2e-6), "snapshot_version": 1186, "snapshot_age_s": 240.0,
        "regret": regret(options, course),
    }  # fmt: skip
    return StoredDecision(**{**known, **fields})


def on_time(name: str, at: float = START, **fields: Any) -> StoredDecision:
    """Return the record of a successful request."""
    arm = fields.pop("arm", "")
    made = stored(
        name, at, queued_s=0.0, arm=arm, late=False, dispatched_after_s=0.0, first_token_after_s=0.4, cached_tokens=9216
    )
    return msgspec.structs.replace(made, mismatch="", regret=None, **fields)


def batch(decisions: Iterable[StoredDecision], name: str = "") -> bytes:
    """Return the decisions in the format of a gateway."""
    return encode_batch(request_batch(name or uuid.uuid4().hex, (), tuple(decisions)))


def keep(*decisions: StoredDecision) -> StoredCounts:
    """Store the decisions in one batch."""
    return store([batch(decisions)])
