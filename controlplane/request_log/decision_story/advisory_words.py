"""Describes an advisory's effect on a request: the reservation, and where the session's KV was, moved, and was used."""

from __future__ import annotations

from controlplane.platform.format import byte_size, count, duration
from controlplane.request_log.decision_story.emphasis import strong
from gateway.contracts.advisory import LATE, OVERRULED
from gateway.contracts.stored_decision import StoredDecision


def what_was_announced(stored: StoredDecision) -> str:
    """Return what an advisory had caused before the request arrived; empty without an advisory."""
    advisory = stored.advisory
    if advisory is None:
        return ""
    words = f" An advisory announced it {strong(duration(advisory.lead_s))} before."
    if advisory.moved_blocks:
        blocks = f"{count(advisory.moved_blocks, 'block')}, {byte_size(advisory.moved_bytes)}"
        way = _way(advisory.held_by, advisory.moved_to)
        words += f" Its session's KV ({blocks}) moved {strong(way)} in {duration(advisory.move_s)}."
    elif advisory.outcome == LATE:
        words += f" Its session's KV was still moving {_way(advisory.held_by, advisory.moved_to)}."
    if advisory.engine_blocks:
        words += f" Its engine had prefetched {strong(count(advisory.engine_blocks, 'block'))} into its own memory."
    if advisory.outcome == OVERRULED:
        words += " By then the reserved engine was unavailable, or another one was clearly cheaper."
    return words


def advisory_fact(stored: StoredDecision) -> str:
    """Return the advisory as a fact about the request."""
    advisory = stored.advisory
    if advisory is None:
        return "none"
    return f"{advisory.outcome}, {duration(advisory.lead_s)} ahead"


def _way(source: str, target: str) -> str:
    return f"from SSD to DRAM of {target}" if source == target else f"from node {source} to {target}"
