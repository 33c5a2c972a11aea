"""Which ended decisions are kept: all that missed their objective or failed, and of the others a share."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

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
    ordinary = [place for place, missed in enumerate(late) if not missed]
    wanted = min(len(ordinary), int(at_most))
    share = wanted / len(ordinary) if wanted else 1.0
    # The middle of each stretch of so many that one stands for them.
    chosen = [ordinary[ceil((number + 0.5) / share) - 1] for number in range(wanted)]
    chosen += [place for place, missed in enumerate(late) if missed]
    return [(ended[place], late[place], 1.0 if late[place] else share) for place in sorted(chosen)]
