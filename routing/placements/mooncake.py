"""KVCache-centric scheduling (Mooncake §4.1–4.2, Algorithm 1): least TTFT, counting blocks that can be fetched.

Blocks come from node managers where the pool's engines have them, in the simulator from other engines. Where nobody
carries out transfers it is §4.1 alone, as min_ttft: a TTFT that counts on blocks which never come would gather
requests on engines that must compute them.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView, tie_salt
from routing.ledger.node_loads import Loadable
from routing.ledger.prefill_with_loads import Prefill, Prefills, what_loads
from routing.placements.candidate_scores import KEPT, blocks_held, least_ttft
from routing.policy.setting import about, number
from routing.values import reasons
from routing.values.decision import Candidate, Choice, Fetch
from routing.values.inference_request import InferenceRequest


class Mooncake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Least time to first token, counting blocks that can be fetched: live from node managers, if there are any."""

    threshold: Annotated[
        float,
        about("Balancing threshold", "Fetches blocks if the best match is more than this many times the engine's own."),
        number("×", ge=1, le=100, usual=(1, 2)),
    ] = 1.2
    bytes_per_token: Annotated[
        int,
        about("KV bytes per token", "Bytes of one token's KV in all layers of the served model."),
        number("B per tok", ge=1, le=100_000_000, usual=(20_000, 400_000)),
    ] = 57_344
    bandwidth_gbps: Annotated[
        float,
        about("Transfer bandwidth", "Send bandwidth of one engine."),
        number("Gbit/s", gt=0, le=10_000, usual=(25, 800)),
    ] = 100.0

    congestion: Annotated[
        bool, about("Sender queues", "Counts a sender's current transfers, and fetches from the least busy holder.")
    ] = False

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine of least TTFT, with the fetch that this TTFT counts on."""
        loadable = what_loads(request, view.nodes, now) if view.nodes is not None else None
        if loadable is not None:
            return self._counting_loads(request, view, now, loadable)
        if not view.roster.transfers_possible:
            return least_ttft(request, view, now, view.match(request), reasons.LEAST_TTFT)
        held, resident = blocks_held(view, view.match(request)), view.resident_match(request)
        salt, best = tie_salt(request), resident.longest
        source = self._source(view, resident.groups[0][1], now) if best else -1
        link_s = max(view.load.sending_until[source] - now, 0.0) if self.congestion and best else 0.0
        scored = []
        for target in view.roster.accepting:
            own = held[target]
            fetches = best > self.threshold * own
            transfer_s = (best - own) * self._block_s(request) if fetches else 0.0
            wait_s = link_s if fetches else 0.0
            hit = view.hit_tokens(request, target, best if fetches else own)
            compute_s = wait_s + transfer_s + view.compute_s(request, target, hit)
            ttft_s = view.wait_s(target, now) + compute_s
            scored.append((ttft_s, target ^ salt, target, compute_s, hit, transfer_s if fetches else None))
        scored.sort()
        kept = [
            Candidate(view.roster.engine_ids[target], hit, view.wait_s(target, now), compute_s, ttft_s, held[target])
            for ttft_s, _, target, compute_s, hit, _ in scored[:KEPT]
        ]
        target, transfer = scored[0][2], scored[0][5]
        if transfer is None:
            return Choice(target, reasons.LEAST_TTFT, tuple(kept))
        return Choice(target, reasons.FETCH, tuple(kept), Fetch(view.roster.engine_ids[source], best, transfer))

    def _counting_loads(self, request: InferenceRequest, view: FleetView, now: float, loadable: Loadable) -> Choice:
        """Return the engine of least TTFT where node managers hold some of the prompt (Algorithm 1 with §3's store)."""
        held, prefills = (
            blocks_held(view, view.match(request)),
            Prefills(request, view, loadable, threshold=self.threshold),
        )
        salt, scored = tie_salt(request), []
        for target in view.roster.accepting:
            wait_s, prefill = view.wait_s(target, now), prefills.on(target, held[target])
            scored.append((wait_s + prefill.seconds, target ^ salt, target, wait_s, prefill))
        scored.sort(key=_order)
        kept = [
            Candidate(view.roster.engine_ids[target], prefill.hit_tokens, wait_s, prefill.seconds, ttft_s, held[target])
            for ttft_s, _, target, wait_s, prefill in scored[:KEPT]
        ]
        fetch = scored[0][4].fetch
        return Choice(scored[0][2], reasons.LOAD if fetch is not None else reasons.LEAST_TTFT, tuple(kept), fetch)

    def _source(self, view: FleetView, holders: int, now: float) -> int:
        """Return the holder whose link is free first; of those the one with the least to prefill."""
        if not self.congestion:
            return _least_waiting(view, holders)
        free = {item: max(view.load.sending_until[item], now) for item in view.roster.accepting if holders >> item & 1}
        first = min(free.values())
        return _least_waiting(view, sum(1 << each for each, at in free.items() if at == first))

    def _block_s(self, request: InferenceRequest) -> float:
        return request.block_tokens * self.bytes_per_token * 8 / (self.bandwidth_gbps * 1e9)


def _order(scored: tuple[float, int, int, float, Prefill]) -> tuple[float, int]:
    return scored[:2]


def _least_waiting(view: FleetView, holders: int) -> int:
    """Return the holder with the least to do, as its own prefills fill its memory and its link."""
    return min((item for item in view.roster.accepting if holders >> item & 1), key=view.load.ready_at.__getitem__)
