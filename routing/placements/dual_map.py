"""DualMap: two candidates by two hash rings over the prompt's prefix, chosen between by the SLO (§3.2)."""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from routing import reasons
from routing.decision import Choice
from routing.fleet import FleetView, hash_of, tie_salt
from routing.hash_ring import DualRing
from routing.inference_request import InferenceRequest
from routing.scoring import candidate


class DualMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Affinity within the pair while the estimated TTFT meets the SLO, the less loaded one otherwise."""

    virtual_nodes: Annotated[int, Meta(ge=1, le=1000, description="Points per engine on each ring.")] = 100
    key_blocks: Annotated[int, Meta(ge=1, le=64, description="Leading blocks that make the hash key.")] = 2

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return one of the request's two candidates."""
        pair = self._pair(request, view)
        match = view.match(request)
        first, second = pair
        first_blocks, second_blocks = match.blocks(first), match.blocks(second)
        loads = view.outstanding_tokens
        salt = tie_salt(request)
        if first_blocks == second_blocks:
            chosen = min(pair, key=lambda each: (loads[each], each ^ salt))
            reason = reasons.EQUAL_MATCH
        else:
            chosen = first if first_blocks > second_blocks else second
            reason = reasons.LONGEST_MATCH
            best = candidate(request, view, chosen, max(first_blocks, second_blocks), now)
            if best.cost > request.ttft_slo_s:
                chosen = min(pair, key=lambda each: (loads[each], each ^ salt))
                reason = reasons.SLO_SWITCH
        other = second if chosen == first else first
        scored = tuple(
            candidate(request, view, each, match.blocks(each), now) for each in dict.fromkeys((chosen, other))
        )
        return Choice(chosen, reason if len(scored) > 1 else reasons.ONLY_ENGINE, scored)

    def _pair(self, request: InferenceRequest, view: FleetView) -> tuple[int, int]:
        ring = view.derived(("dual_ring", self.virtual_nodes), self._build)
        keys = request.keys
        key = keys[min(self.key_blocks, len(keys)) - 1] if keys else hash_of(request.request_id)
        first, second = ring.pair(key)
        return view.accepting[first], view.accepting[second]

    def _build(self, view: FleetView) -> DualRing:
        return DualRing([view.engine_ids[each] for each in view.accepting], virtual_nodes=self.virtual_nodes)
