"""DualMap: two candidates by two hash rings over the prompt's prefix, chosen between by the SLO (§3.2)."""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from routing import reasons
from routing.decision import Candidate, Choice
from routing.fleet import FleetView, hash_of, tie_salt
from routing.hash_ring import DualRing
from routing.inference_request import InferenceRequest
from routing.scoring import candidate


class DualMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keeps a prefix on its pair of engines: the one that holds more while the TTFT meets the SLO, else the freer."""

    virtual_nodes: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            title="Virtual nodes",
            description="Points per engine on each ring; more points share the keys more evenly.",
            extra_json_schema={"x-unit": "points", "x-usual": [50, 200]},
        ),
    ] = 100
    key_blocks: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            title="Key length",
            description="Leading blocks of the prompt that choose its pair.",
            extra_json_schema={"x-unit": "blocks", "x-usual": [1, 4]},
        ),
    ] = 2

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return one of the request's two candidates."""
        first, second = self._pair(request, view)
        match = view.match(request)
        one = candidate(request, view, first, match.blocks(first), now)
        if first == second:
            return Choice(first, reasons.ONLY_ENGINE, (one,))
        two = candidate(request, view, second, match.blocks(second), now)
        if one.blocks != two.blocks:
            take_first = one.blocks > two.blocks
            if (one if take_first else two).cost <= request.ttft_slo_s:
                return _choice(first, second, one, two, reasons.LONGEST_MATCH, take_first=take_first)
        loads, salt = view.outstanding_tokens, tie_salt(request)
        take_first = (loads[first], first ^ salt) <= (loads[second], second ^ salt)
        reason = reasons.EQUAL_MATCH if one.blocks == two.blocks else reasons.SLO_SWITCH
        return _choice(first, second, one, two, reason, take_first=take_first)

    def _pair(self, request: InferenceRequest, view: FleetView) -> tuple[int, int]:
        ring = view.derived(("dual_ring", self.virtual_nodes), self._build)
        keys = request.keys
        key = keys[min(self.key_blocks, len(keys)) - 1] if keys else hash_of(request.request_id)
        first, second = ring.pair(key)
        return view.accepting[first], view.accepting[second]

    def _build(self, view: FleetView) -> DualRing:
        return DualRing([view.engine_ids[each] for each in view.accepting], virtual_nodes=self.virtual_nodes)


def _choice(first: int, second: int, one: Candidate, two: Candidate, reason: str, *, take_first: bool) -> Choice:
    return Choice(first, reason, (one, two)) if take_first else Choice(second, reason, (two, one))
