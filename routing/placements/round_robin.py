"""Every engine in turn, whatever it holds and however loaded it is: the baseline."""

from __future__ import annotations

from random import Random

import msgspec

from routing import reasons
from routing.decision import Choice
from routing.fleet import FleetView
from routing.inference_request import InferenceRequest
from routing.scoring import candidate


class RoundRobin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Takes the accepting engines in turn, in the order of their ids."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the next engine of the round."""
        target = view.accepting[view.decisions % len(view.accepting)]
        blocks = view.match(request).blocks(target)
        return Choice(target, reasons.ROUND_ROBIN, (candidate(request, view, target, blocks, now),))
