"""Default fields of a traffic row, for tests that need only a few of them."""

from __future__ import annotations

from typing import Any

from routing.values.decision import Decision

BLANK: dict[str, Any] = {
    "output_tokens": None, "blocks": (), "session": "", "tenant": "", "priority": 0, "outcome": "completed",
    "late": False, "first_token_after_s": None, "finished_after_s": None, "cached_tokens": None, "engines": 0,
    "policy_version": 0, "head": (), "agent": "", "workflow": "", "origin": "",
}  # fmt: skip


def row_of(decision: Decision) -> dict[str, Any]:
    """Return the fields of a row whose request got this decision."""
    pool, tokens, version = decision.pool_id, decision.prompt_tokens, decision.policy_version
    return {**BLANK, "pool": pool, "prompt_tokens": tokens, "policy_version": version}
