"""One balancer: its queue, its view of its engines and of other regions, and its rule."""

from __future__ import annotations

from collections import deque

import msgspec

from routing.regions.region_rule import RegionRule
from routing.regions.region_view import PeerLoad, RegionEngineLoad, RegionView
from routing.regions.sovereignty import ALLOW_ALL, SovereigntyDocument, SovereigntyVerdict
from simulator.regions.batch_engine import BatchEngine
from simulator.regions.network import Network
from simulator.regions.prefix_snapshot import SimulatedPrefixSnapshot, published_match
from simulator.regions.push_limits import PushLimit
from simulator.regions.region_request import RegionRequest
from simulator.regions.segment_cache import SegmentCache
from simulator.virtual_clock import VirtualClock

PROBE_S = 0.1
"""Seconds between probes and heartbeats (§4.1)."""
QUEUE_BUFFER = 4
"""τ: queue length above which a region accepts no forwarded requests (Algorithm 1, line 12)."""
INDEX_TOKENS = 240_000
"""Number of tokens that a balancer remembers per engine and per other region."""


class BalancerHeartbeat(msgspec.Struct, frozen=True):
    """The state that a balancer sends to other balancers."""

    sent_s: float
    available: int
    queued: int
    in_flight: int
    engines: int
    prefixes: frozenset[int] = frozenset()
    """The published snapshot of the prefixes that its engines hold."""


class _Engine:
    """The balancer's view of one engine. Mutable: pending requests at the last probe, requests it sent, and the
    index.
    """

    def __init__(self, engine: BatchEngine) -> None:
        self.engine = engine
        self.pending = 0
        self.in_flight = 0
        self.index = SegmentCache(INDEX_TOKENS)


class Peer:
    """The balancer's view of another balancer. Mutable: the last heartbeat, the snapshot, and forwards not yet
    counted in it.
    """

    def __init__(self, balancer: Balancer, one_way_s: float) -> None:
        self.balancer, self.one_way_s = balancer, one_way_s
        self.heartbeat = BalancerHeartbeat(0.0, 0, 0, 0, 1)
        self.snapshot = SegmentCache(INDEX_TOKENS)
        self.forwarded: deque[float] = deque()

    @property
    def has_room(self) -> bool:
        """Whether the region accepts requests according to its last heartbeat."""
        return self.heartbeat.available > 0 and self.heartbeat.queued <= QUEUE_BUFFER

    def load(self, request: RegionRequest) -> PeerLoad:
        """Return the peer in the form that the rule uses."""
        beat = self.heartbeat
        in_flight = (beat.in_flight + beat.queued + len(self.forwarded)) / beat.engines
        matched = max(self.snapshot.match(request.prompt), published_match(request.prompt, beat.prefixes))
        return PeerLoad(self.balancer.region, matched, self.has_room, in_flight, self.one_way_s)

    def receive(self, heartbeat: BalancerHeartbeat) -> None:
        """Apply a heartbeat, and drop the forwards that it already counts."""
        self.heartbeat = heartbeat
        while self.forwarded and self.forwarded[0] + self.one_way_s <= heartbeat.sent_s:
            self.forwarded.popleft()


class Balancer:
    """The entry point for a region's clients, or for all clients if there is only one balancer.

    Mutable state: the queue, and the views of engines and peers.
    """

    def __init__(
        self,
        region: str,
        rule: RegionRule,
        push_limit: PushLimit,
        clock: VirtualClock,
        network: Network,
        *,
        indexes_outputs: bool = False,
        publishes_prefixes: bool = False,
        sovereignty: SovereigntyDocument = ALLOW_ALL,
    ) -> None:
        self.region = region
        self.queue: deque[RegionRequest] = deque()
        self.dispatched = 0
        self.engines: list[_Engine] = []
        self.peers: list[Peer] = []
        self._rule, self._push_limit, self._clock, self._network = rule, push_limit, clock, network
        self._indexes_outputs = indexes_outputs
        self._sovereignty = sovereignty
        self._prefixes = SimulatedPrefixSnapshot() if publishes_prefixes else None

    def join(self, engine: BatchEngine) -> None:
        """Add an engine."""
        self.engines.append(_Engine(engine))

    def meet(self, other: Balancer) -> None:
        """Add another region's balancer as a peer."""
        self.peers.append(Peer(other, self._network.delay(self.region, other.region)))

    def start(self, offset_s: float) -> None:
        """Start probing and sending heartbeats, with an offset of `offset_s` from other balancers."""
        if self._push_limit.kind == "pending":
            for region in dict.fromkeys(known.engine.region for known in self.engines):
                there = [known for known in self.engines if known.engine.region == region]
                self._clock.after(offset_s, self._probe, there, self._network.delay(self.region, region))
        if self.peers:
            self._clock.after(offset_s, self._beat)

    def arrive(self, request: RegionRequest) -> None:
        """Route a new request, or queue it."""
        request.queued_s = self._clock.now
        if len(self.queue) >= self._rule.lookahead or not self._route(request):
            self.queue.append(request)

    def _route(self, request: RegionRequest) -> bool:
        peers = self._permitted(request)
        choice = self._rule.choose(self._view(request, peers))
        if choice.waits:
            return False
        request.trail.append(choice.reason)
        self.dispatched += 1
        if choice.peer is not None:
            self._forward(request, peers[choice.peer])
        elif choice.engine is not None:
            self._dispatch(request, self.engines[choice.engine])
        return True

    def _permitted(self, request: RegionRequest) -> list[Peer]:
        """Return the peers that can receive the request: none after one hop; before that, those that the rules
        allow.
        """
        if request.hops:
            return []
        return [peer for peer in self.peers if self._verdict(request, peer).allowed]

    def _verdict(self, request: RegionRequest, peer: Peer) -> SovereigntyVerdict:
        return self._sovereignty.verdict(request.tenant, request.region, peer.balancer.region)

    def _view(self, request: RegionRequest, permitted: list[Peer]) -> RegionView:
        limit = self._push_limit
        engines = tuple(
            [
                RegionEngineLoad(
                    known.engine.engine_id,
                    known.index.match(request.prompt),
                    known.in_flight,
                    limit.has_room(known.pending, known.in_flight),
                    known.index.tokens,
                )
                for known in self.engines
            ]
        )
        peers = tuple([peer.load(request) for peer in permitted])
        waited_s = self._clock.now - request.queued_s
        load = (self._in_flight() + len(self.queue)) / len(engines)
        return RegionView(request.prompt.tokens, request.session_key, waited_s, self.dispatched, load, engines, peers)

    def _forward(self, request: RegionRequest, peer: Peer) -> None:
        peer.snapshot.add(request.prompt)
        peer.forwarded.append(self._clock.now)
        request.hops += 1
        request.allowed_by = self._verdict(request, peer).rule
        request.way_back_s += self._network.delay(peer.balancer.region, self.region)
        self._clock.after(peer.one_way_s, peer.balancer.arrive, request)

    def _dispatch(self, request: RegionRequest, known: _Engine) -> None:
        known.index.add(request.prompt)
        if self._prefixes is not None:
            self._prefixes.note(request.prompt)
        known.in_flight += 1
        request.served_region = known.engine.region
        request.way_back_s += self._network.delay(known.engine.region, self.region)
        self._clock.after(self._network.delay(self.region, known.engine.region), known.engine.arrive, request)

    def ended(self, request: RegionRequest, engine: BatchEngine) -> None:
        """Record that a request has ended on an engine."""
        known = next(known for known in self.engines if known.engine is engine)
        known.in_flight -= 1
        if self._indexes_outputs:
            known.index.add(request.prompt.then(request.output))
        if self._push_limit.kind == "in_flight":
            self._scan()

    def _scan(self) -> None:
        """Apply the rule again to the waiting requests within its lookahead."""
        if not self.queue or not self._room_anywhere():
            return
        kept: deque[RegionRequest] = deque()
        while self.queue and len(kept) < self._rule.lookahead:
            request = self.queue.popleft()
            if not self._route(request):
                kept.append(request)
        self.queue.extendleft(reversed(kept))

    def _room_anywhere(self) -> bool:
        limit = self._push_limit
        has_room = any(limit.has_room(known.pending, known.in_flight) for known in self.engines)
        return has_room or any(peer.has_room for peer in self.peers)

    def _in_flight(self) -> int:
        return sum([known.in_flight for known in self.engines])

    def _probe(self, there: list[_Engine], delay_s: float) -> None:
        self._clock.after(delay_s, self._read, there, delay_s)
        self._clock.after(PROBE_S, self._probe, there, delay_s)

    def _read(self, there: list[_Engine], delay_s: float) -> None:
        self._clock.after(delay_s, self._learn, there, [len(known.engine.waiting) for known in there])

    def _learn(self, there: list[_Engine], pending: list[int]) -> None:
        for known, count in zip(there, pending, strict=True):
            known.pending = count
        self._scan()

    def _beat(self) -> None:
        limit = self._push_limit
        available = sum(limit.has_room(known.pending, known.in_flight) for known in self.engines)
        prefixes = self._prefixes.keys() if self._prefixes is not None else frozenset[int]()
        beat = BalancerHeartbeat(
            self._clock.now, available, len(self.queue), self._in_flight(), len(self.engines), prefixes
        )
        for peer in self.peers:
            self._clock.after(peer.one_way_s, peer.balancer.receive, self.region, beat)
        self._clock.after(PROBE_S, self._beat)

    def receive(self, region: str, heartbeat: BalancerHeartbeat) -> None:
        """Process another region's heartbeat."""
        next(peer for peer in self.peers if peer.balancer.region == region).receive(heartbeat)
        self._scan()
