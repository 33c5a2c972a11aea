"""Which ended decisions are kept: all that missed their objective or failed, and of the others a share."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.pool.recent_decisions import DecisionRecord
from gateway.traffic.traffic_window import FAILED, REJECTED


def is_late(record: DecisionRecord) -> bool:
    """Return whether the objective was missed: first token too late, rejected or failed."""
    if record.outcome in (FAILED, REJECTED):
        return True
    ttft_s = record.ttft_s
    if ttft_s is None:
        # Where no first token was seen (an answer in one piece), only the wait at the gateway can be judged.
        return record.decision.queued_s > record.ttft_slo_s
    return ttft_s > record.ttft_slo_s


Kept = tuple[DecisionRecord, bool, float]
"""A record, whether it is late, and the share of its like that is kept."""


def kept(ended: Sequence[DecisionRecord], late: Sequence[bool], at_most: float) -> list[Kept]:
    """Return the records to keep, in their order.

    `at_most` bounds the ordinary ones, evenly spread over all of them; misses and failures are never left out.
    """
    ordinary = len(ended) - sum(late)
    wanted = min(ordinary, int(at_most))
    if wanted == ordinary:
        return [(record, missed, 1.0) for record, missed in zip(ended, late, strict=True)]
    share = wanted / ordinary
    found, number, due = [], 0, 0.5
    for record, missed in zip(ended, late, strict=True):
        if missed:
            found.append((record, True, 1.0))
            continue
        number += 1
        # Evenly spread: one each time that so many like it have passed.
        if number * share >= due and wanted:
            found.append((record, False, share))
            due += 1.0
    return found
