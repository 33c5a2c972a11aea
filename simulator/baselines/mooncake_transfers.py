"""Mooncake's Algorithm 1 with blocks fetched from other engines (§4.2), as the paper simulates it.

In a live pool, engines send no blocks to each other. They load them from node managers, as the live rule assumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from typing_extensions import override

from routing.ledger.fleet_view import FleetView, tie_salt
from routing.ledger.prefill_with_loads import Prefill
from routing.placements.candidate_scores import KEPT
from routing.placements.mooncake import Mooncake
from routing.policy.setting import about, number
from routing.values import reasons
from routing.values.decision import Candidate, Choice, Decision
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import Fetch


class MooncakeTransfers(Mooncake, frozen=True, forbid_unknown_fields=True):
    """Least time to first token, if blocks can be fetched from another engine."""

    # The reference profile's model: 28 layers × 2 (K and V) × 4 KV heads × 128 × 2 bytes.
    bytes_per_token: Annotated[
        int,
        about("KV bytes per token", "KV bytes of one token in all layers of the served model."),
        number("B per tok", ge=1, le=100_000_000, usual=(20_000, 400_000)),
    ] = 57_344
    bandwidth_gbps: Annotated[
        float,
        about("Transfer bandwidth", "Send bandwidth of one engine."),
        number("Gbit/s", gt=0, le=10_000, usual=(25, 800)),
    ] = 100.0
    congestion: Annotated[
        bool,
        about("Sender queues", "Takes senders' current transfers into account and fetches from the least busy holder."),
    ] = False

    @override
    def without_loads(self, request: InferenceRequest, view: FleetView, now: float) -> Choice:
        """Return the engine of least TTFT, with the fetch that this TTFT assumes."""
        busy = view.sending_until
        if busy is None:
            return super().without_loads(request, view, now)
        held, resident = view.held(view.match(request)), view.resident_match(request)
        salt, best = tie_salt(request), resident.longest
        source = self._source(view, busy, resident.groups[0][1], now) if best else -1
        link_s = self._free_at(view, busy, source, now) - now if self.congestion and best else 0.0
        scored = []
        for target in view.roster.accepting:
            own = held[target]
            # A product: the ratio in the paper has no value where the engine holds nothing.
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

    def prefill_at_dispatch(
        self, request: InferenceRequest, decision: Decision, view: FleetView, target: int, held: int
    ) -> Prefill:
        """Return the prefill of a queued request that leaves the queue now, with what is left of its planned fetch."""
        planned, roster = decision.fetch, view.roster
        blocks, fetch = held, None
        if planned is not None:
            resident = view.resident_match(request)
            sources = [item for item in roster.accepting if roster.engine_ids[item] == planned.source_engine_id]
            blocks = max([held, *(resident.blocks(source) for source in sources)])
            if blocks > held:
                # The planned time is for the blocks that the engine lacked at the decision.
                block_s = planned.seconds / (planned.blocks - decision.candidates[0].blocks)
                fetch = Fetch(planned.source_engine_id, blocks, block_s * (blocks - held))
        hit = view.hit_tokens(request, target, blocks)
        return Prefill(view.compute_s(request, target, hit) + (fetch.seconds if fetch else 0.0), hit, fetch)

    def _source(self, view: FleetView, busy: Mapping[str, float], holders: int, now: float) -> int:
        """Return the holder whose link is free first; on a tie, the one with the least pending prefill."""
        if not self.congestion:
            return _least_waiting(view, holders)
        free = {
            target: self._free_at(view, busy, target, now) for target in view.roster.accepting if holders >> target & 1
        }
        first = min(free.values())
        return _least_waiting(view, sum(1 << target for target, at in free.items() if at == first))

    def _free_at(self, view: FleetView, busy: Mapping[str, float], target: int, now: float) -> float:
        return max(busy.get(view.roster.engine_ids[target], 0.0), now)

    def _block_s(self, request: InferenceRequest) -> float:
        return request.block_tokens * self.bytes_per_token * 8 / (self.bandwidth_gbps * 1e9)


def _least_waiting(view: FleetView, holders: int) -> int:
    """Return the holder with the shortest wait, because its prefills use its memory and its link."""
    return min(
        (target for target in view.roster.accepting if holders >> target & 1), key=view.load.ready_at.__getitem__
    )
