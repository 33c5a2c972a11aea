"""Observers of a router's decisions, which do not influence them."""

from __future__ import annotations

from typing import Protocol

from routing.ledger.fleet_view import FleetView
from routing.values.decision import Choice
from routing.values.feedback_events import FeedbackEvent
from routing.values.inference_request import InferenceRequest


class DecisionObserver(Protocol):
    """Receives each choice before it is carried out. Must not raise or change its arguments."""

    def placed(self, request: InferenceRequest, choice: Choice, view: FleetView, now: float) -> None:
        """Observe the placement's choice on this view, before it is bound."""

    def learn(self, event: FeedbackEvent) -> None:
        """Observe the feedback on actual choices, as learning placements do."""
