"""What this process has of the decision store: its ear on the bus and its hand on the segments."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from django.conf import settings

from controlplane.bus import get_bus
from controlplane.decision_store.intake import DecisionIntake
from controlplane.decision_store.keeper import DecisionKeeper
from controlplane.decision_store.shelf import SegmentShelf


@dataclass(slots=True)
class DecisionStorage:
    """This process's part of the store. Mutable: the counts."""

    intake: DecisionIntake
    keeper: DecisionKeeper
    recovered: bool = False
    stored: int = 0
    runs: int = 0


@functools.cache
def storage() -> DecisionStorage:
    """Return this process's one storage, which hears the bus from the first call on."""
    return DecisionStorage(DecisionIntake(get_bus()), decision_keeper())


def decision_keeper() -> DecisionKeeper:
    """Return a keeper of the store in the state directory."""
    return DecisionKeeper(decision_shelf(), settings.DECISION_BYTES)


def decision_shelf() -> SegmentShelf:
    """Return the segments in the state directory."""
    return SegmentShelf(settings.STATE_DIR / "decisions", settings.DECISION_BYTES)
