"""Collects batches of decisions from the bus until the job stores them."""

from __future__ import annotations

import logging

from controlplane.stream_intake import StreamIntake
from gateway.bus.bus import Bus
from gateway.contracts.stored_decision import TOPIC, StoredDecision, decode_batch
from gateway.contracts.wire import UnreadableMessageError

logger = logging.getLogger(__name__)


class DecisionIntake(StreamIntake):
    """Hears batches of decisions."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus, TOPIC)


def decoded(batches: list[bytes]) -> list[StoredDecision]:
    """Return the decisions of all batches that can be read; others are logged and left out."""
    decisions: list[StoredDecision] = []
    for value in batches:
        try:
            decisions += decode_batch(value).decisions
        except UnreadableMessageError as error:
            logger.warning("decisions cannot be read", extra={"reason": str(error)})
    return decisions
