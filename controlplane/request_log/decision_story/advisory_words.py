"""What an advisory did for a request, in words: what was reserved, where the session's KV was, moved and was used."""

from __future__ import annotations

from controlplane.platform.format import byte_size, count, duration
from controlplane.request_log.decision_story.emphasis import strong
from gateway.contracts.advisory import LATE, OVERRULED
from gateway.contracts.stored_decision import StoredDecision


def what_was_announced(stored: StoredDecision) -> str:
    """Return what an advisory had done before the request came; empty where there was none."""
    told = stored.advisory
    if told is None:
        return ""
    words = f" An advisory announced it {strong(duration(told.lead_s))} before."
    if told.moved_blocks:
        blocks = f"{count(told.moved_blocks, 'block')}, {byte_size(told.moved_bytes)}"
        way = _way(told.held_by, told.moved_to)
        words += f" Its session's KV ({blocks}) moved {strong(way)} in {duration(told.move_s)}."
    elif told.outcome == LATE:
        words += f" Its session's KV was still on its way {_way(told.held_by, told.moved_to)}."
    if told.outcome == OVERRULED:
        words += " By then the reserved engine took no work, or another one was clearly cheaper."
    return words


def advisory_fact(stored: StoredDecision) -> str:
    """Return the advisory as a fact of the request."""
    told = stored.advisory
    if told is None:
        return "none"
    return f"{told.outcome}, {duration(told.lead_s)} ahead"


def _way(source: str, target: str) -> str:
    return f"from SSD to DRAM of {target}" if source == target else f"from node {source} to {target}"
