"""What an advisory did for a request, in words: what was reserved, where the session's KV was, moved and was used."""

from __future__ import annotations

from controlplane.platform.format import byte_size, count, duration
from controlplane.request_log.decision_story.load_words import Words
from gateway.contracts.advisory import LATE, OVERRULED
from gateway.contracts.stored_decision import StoredDecision


def what_was_announced(stored: StoredDecision) -> Words:
    """Return what an advisory had done before the request came; [] where there was none."""
    told = stored.advisory
    if told is None:
        return []
    words: Words = [(" An advisory announced it ", False), (duration(told.lead_s), True), (" before.", False)]
    if told.moved_blocks:
        blocks = f"{count(told.moved_blocks, 'block')}, {byte_size(told.moved_bytes)}"
        words += [
            (f" Its session's KV ({blocks}) moved ", False),
            (_way(told.held_by, told.moved_to), True),
            (f" in {duration(told.move_s)}.", False),
        ]
    elif told.outcome == LATE:
        words.append((f" Its session's KV was still on its way {_way(told.held_by, told.moved_to)}.", False))
    if told.outcome == OVERRULED:
        words.append((" By then the reserved engine took no work, or another one was clearly cheaper.", False))
    return words


def advisory_fact(stored: StoredDecision) -> str:
    """Return the advisory as a fact of the request."""
    told = stored.advisory
    if told is None:
        return "none"
    return f"{told.outcome}, {duration(told.lead_s)} ahead"


def _way(source: str, target: str) -> str:
    return f"from SSD to DRAM of {target}" if source == target else f"from node {source} to {target}"
