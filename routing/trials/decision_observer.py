"""Observers of a router's decisions, without influence on them."""

from __future__ import annotations

from typing import Protocol

from routing.ledger.fleet_view import FleetView
from routing.values.decision import Choice
from routing.values.feedback_events import FeedbackEvent
from routing.values.inference_request import InferenceRequest


class DecisionObserver(Protocol):
    """Sees each choice before it is carried out. Must not raise, and must leave all it is shown unchanged."""

    def placed(self, request: InferenceRequest, choice: Choice, view: FleetView, now: float) -> None:
        """Take note that the placement chose this on this view; the choice is about to be bound."""

    def learn(self, event: FeedbackEvent) -> None:
        """Take note of what really happened, as learning placements do."""
