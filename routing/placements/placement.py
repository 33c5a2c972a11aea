"""The protocol for placements, which choose an engine for one request."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol, runtime_checkable

from routing.ledger.fleet_view import FleetView
from routing.ledger.prefill_with_loads import Prefill
from routing.values.decision import Choice, Decision
from routing.values.feedback_events import FeedbackEvent
from routing.values.inference_request import InferenceRequest


class Placement(Protocol):
    """Chooses a target among `view.roster.accepting`, which is never empty. Keeps no copy of the fleet."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the target for the request, with a reason and the best candidates.

        The target is CENTRAL if the request should wait unbound. Its first candidate is then the engine to use if the
        request cannot wait. The call changes no state: the choice returns as a feedback event.
        """


@runtime_checkable
class LearningPlacement(Placement, Protocol):
    """A placement that learns from the results of its choices."""

    def learn(self, event: FeedbackEvent) -> None:
        """Learn from one feedback event."""


@runtime_checkable
class KeptPlacement(Placement, Protocol):
    """A placement whose learned state outlives the process."""

    def kept(self) -> bytes:
        """Return the learned state."""

    def resume(self, kept: bytes) -> None:
        """Continue with a state that `kept` returned. One of other parameters is ignored."""


@runtime_checkable
class TransferringPlacement(Placement, Protocol):
    """A placement of the simulator, whose engines send each other blocks."""

    def prefill_at_dispatch(
        self, request: InferenceRequest, decision: Decision, view: FleetView, target: int, held: int
    ) -> Prefill:
        """Return the prefill of a queued request that leaves the queue now, with the transfer that it still needs."""


def learning_method(placement: Placement) -> Callable[[FeedbackEvent], None] | None:
    """Return the placement's feedback method, None if it does not learn or `learns` is false."""
    wants = getattr(placement, "learns", True)
    return placement.learn if wants and isinstance(placement, LearningPlacement) else None
