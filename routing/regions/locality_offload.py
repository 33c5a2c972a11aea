"""Our region rule: pull scheduling with bounded patience, a linear cost, early offload, and sticky sessions.

The study of SkyWalker quoted in docs/simulate.md measures each step and its default.
"""

from __future__ import annotations

import msgspec

from routing.regions.region_view import WAIT, PeerLoad, RegionChoice, RegionView


class LocalityOffload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Compares lost cache and load in seconds, within the region and between regions."""

    prefill_s_per_token: float = 0.000547
    in_flight_s: float = 0.04
    """Cost of one more request in flight on an engine (s)."""
    patience_s: float = 4.0
    """Maximum wait for the engine of lowest cost (s)."""
    patience_saving_s: float = 0.3
    """Prefill time that an engine must save to justify the maximum wait (s). Smaller savings shorten the wait."""
    stick_tokens: int = 200
    """Minimum tokens that a region must hold beyond any local engine for the request to go there."""
    stick_in_flight: float = 10.0
    """Maximum additional load of that region (requests per engine)."""
    early_in_flight: float = 5.0
    """Minimum load difference for sending a request to a region while local engines still have room (requests per
    engine).
    """
    early_in_flight_per_s: float = 20.0
    """Additional minimum load difference, per second of one-way latency."""
    early_local_in_flight: float = 15.0
    """Minimum local load for it (requests per engine). With less, the first token here is sooner than a round trip."""
    early_loss_s: float = 0.05
    """Maximum prefill time lost by such an early offload (s)."""
    lookahead: int = 128

    def choose(self, view: RegionView) -> RegionChoice:
        """Return a region that holds the session, an idle region, the cheapest engine, or a wait for that engine."""
        held = max(engine.matched_tokens for engine in view.engines)
        peers = [at for at, peer in enumerate(view.peers) if peer.has_room]
        return (
            self._stick(view, peers, held)
            or self._early(view, peers, held)
            or self._local(view)
            or self._forward(view, peers, held)
        )

    def _stick(self, view: RegionView, peers: list[int], held: int) -> RegionChoice | None:
        limit = view.in_flight_per_engine + self.stick_in_flight
        for at in sorted(peers, key=lambda at: (-view.peers[at].matched_tokens, at)):
            peer = view.peers[at]
            if peer.matched_tokens > held + self.stick_tokens and peer.in_flight_per_engine <= limit:
                return RegionChoice("session_region", peer=at)
        return None

    def _early(self, view: RegionView, peers: list[int], held: int) -> RegionChoice | None:
        if not peers:
            return None
        at = min(peers, key=lambda at: (view.peers[at].in_flight_per_engine, at))
        peer = view.peers[at]
        margin = self.early_in_flight + self.early_in_flight_per_s * peer.one_way_s
        own = view.in_flight_per_engine
        idler = own >= self.early_local_in_flight and own - peer.in_flight_per_engine >= margin
        return RegionChoice("early_offload", peer=at) if idler and self._lost(peer, held) < self.early_loss_s else None

    def _local(self, view: RegionView) -> RegionChoice | None:
        costs = [
            (self.in_flight_s * engine.in_flight - self.prefill_s_per_token * engine.matched_tokens, at)
            for at, engine in enumerate(view.engines)
        ]
        home = min(costs)[1]
        if view.engines[home].has_room:
            return RegionChoice("least_cost", engine=home)
        free = [cost for cost in costs if view.engines[cost[1]].has_room]
        if not free:
            return None
        at = min(free)[1]
        saved = view.engines[home].matched_tokens - view.engines[at].matched_tokens
        patience_is_over = view.waited_s >= self._patience(saved * self.prefill_s_per_token)
        return RegionChoice("patience_over", engine=at) if patience_is_over else WAIT

    def _forward(self, view: RegionView, peers: list[int], held: int) -> RegionChoice:
        if not peers:
            return WAIT
        at = min(peers, key=lambda at: (self._remote_cost(view.peers[at]), at))
        lost = self._lost(view.peers[at], held)
        if lost < self.early_loss_s or view.waited_s >= self._patience(lost):
            return RegionChoice("no_local_room", peer=at)
        return WAIT

    def _lost(self, peer: PeerLoad, held: int) -> float:
        return (held - peer.matched_tokens) * self.prefill_s_per_token

    def _remote_cost(self, peer: PeerLoad) -> float:
        load = self.in_flight_s * peer.in_flight_per_engine
        return load + peer.one_way_s - self.prefill_s_per_token * peer.matched_tokens

    def _patience(self, saving_s: float) -> float:
        return self.patience_s * min(1.0, max(0.0, saving_s) / self.patience_saving_s)
