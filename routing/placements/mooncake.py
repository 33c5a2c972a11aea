"""KVCache-centric scheduling (Mooncake §4.1–4.2, Algorithm 1): lowest TTFT, counting blocks that can be fetched.

Blocks come from node managers. Without them it is §4.1 alone, as min_ttft: a TTFT that counts on blocks that never
arrive would gather requests on engines that must compute them. The simulator adds fetches from other engines
(simulator.baselines.mooncake_transfers).
"""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView, tie_salt
from routing.ledger.prefill_with_loads import Prefill, Prefills
from routing.placements.candidate_scores import KEPT, least_ttft
from routing.policy.setting import about, number
from routing.values import reasons
from routing.values.decision import Candidate, Choice
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import LoadOptions


class Mooncake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks the lowest time to first token, counting blocks that can be fetched, in live pools from node managers."""

    threshold: Annotated[
        float,
        about("Balancing threshold", "Fetches blocks if the best match is more than this many times the engine's own."),
        number("×", ge=1, le=100, usual=(1, 2)),
    ] = 1.2

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine with the lowest TTFT, with the fetch that this TTFT counts on."""
        loads = view.load_options(request, now)
        if loads is not None and loads.groups:
            return self._counting_loads(request, view, now, loads)
        return msgspec.structs.replace(self.without_loads(request, view, now), loads=loads)

    def without_loads(self, request: InferenceRequest, view: FleetView, now: float) -> Choice:
        """Return the engine with the lowest TTFT if no node manager holds part of the prompt."""
        return least_ttft(request, view, now, view.match(request), reasons.LEAST_TTFT)

    def _counting_loads(self, request: InferenceRequest, view: FleetView, now: float, loads: LoadOptions) -> Choice:
        """Return the lowest-TTFT engine if node managers hold part of the prompt (Algorithm 1 with §3's store)."""
        held, prefills = (
            view.held(view.match(request)),
            Prefills(request, view, loads, threshold=self.threshold),
        )
        salt, scored = tie_salt(request), []
        for target in view.roster.accepting:
            wait_s, prefill = view.wait_s(target, now), prefills.on(target, held[target])
            scored.append((wait_s + prefill.seconds, target ^ salt, target, wait_s, prefill))
        # By time and salt alone, since prefills do not compare.
        scored.sort(key=_order)
        kept = [
            Candidate(view.roster.engine_ids[target], prefill.hit_tokens, wait_s, prefill.seconds, ttft_s, held[target])
            for ttft_s, _, target, wait_s, prefill in scored[:KEPT]
        ]
        fetch = scored[0][4].fetch
        reason = reasons.LOAD if fetch is not None else reasons.LEAST_TTFT
        return Choice(scored[0][2], reason, tuple(kept), fetch, loads)


def _order(scored: tuple[float, int, int, float, Prefill]) -> tuple[float, int]:
    return scored[:2]
