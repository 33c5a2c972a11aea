"""One gateway of a region under the virtual clock: it drives the production decision chain.

It does what the live gateway does with the chain: dispatches and forwards, reports events and probes of engines, and
exchanges heartbeats with the gateways of other regions. All messages take the one-way delay of their link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from routing.chain.region_decider import RegionDecider
from routing.chain.region_loads import pool_load
from routing.chain.region_targets import RegionPool, RegionTargets, Serving
from routing.ledger.fleet_view import EngineFacts
from routing.regions.heartbeat import Heartbeat, HeartbeatCall, ServiceFacts
from routing.regions.peer_gateway import SILENCE_S, PeerGateway
from routing.regions.prefix_snapshot import PrefixSnapshot
from routing.regions.sovereignty import SovereigntyDocument
from routing.values.decision import ChainOutcome, Decision, Dispatched, Elsewhere, Rejected
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, Failed, FirstToken, ForwardFailed, Observation
from simulator.engine_models.engine_events import BlocksRemoved, BlocksStored, EngineEvent, Finished, FirstTokenEvent
from simulator.engine_models.engine_profile import EngineProfile
from simulator.regions.hosted_engine import HostedEngine
from simulator.regions.network import RegionNetwork
from simulator.regions.policies import RegionPolicy
from simulator.regions.region_request import BLOCK_TOKENS, RegionRequest
from simulator.virtual_clock import Timer, VirtualClock

HEARTBEAT_S = 0.1
"""Seconds between heartbeats (SkyWalker §4.1)."""
SERVED_MODEL = "model"
_PROGRESS = (FirstTokenEvent, Finished)
_EVENTS = (*_PROGRESS, BlocksStored, BlocksRemoved)
_LEAST_WAIT_S = 0.001


class SimulatedGateway:
    """One gateway. Mutable: its chain, peers, snapshot, the origin of each open request, and the next wake."""

    def __init__(
        self,
        region: str,
        system: RegionPolicy,
        profile: EngineProfile,
        engines: Sequence[HostedEngine],
        clock: VirtualClock,
        network: RegionNetwork,
        *,
        sovereignty: SovereigntyDocument,
        answered: Callable[[RegionRequest], None],
    ) -> None:
        """`answered` receives each request that an engine has answered, and each one that ends with an error."""
        self.region = region
        self.gateways: dict[str, PeerGateway] = {}
        """The gateways of other regions by name."""
        self._beyond: dict[str, SimulatedGateway] = {}
        self.engines = {engine.engine_id: engine for engine in engines}
        self._system, self._clock, self._network, self._answered = system, clock, network, answered
        self.router = system.router(region, profile, len(engines))
        own = RegionPool(region, SERVED_MODEL, self.router)
        self.chain = RegionDecider(
            self.router,
            lambda: own,
            RegionTargets(self, lambda _model: [own], lambda: sovereignty),
            self.router.policy,
            rules=system.region_rules,
        )
        self._prefixes = PrefixSnapshot()
        self._open: dict[str, tuple[RegionRequest, SimulatedGateway | None]] = {}
        self._timer = Timer(clock, lambda: self._carry_out(self.chain.tick(clock.now)))
        self.router.set_engines([EngineFacts(name, 1, accepts=True) for name in self.engines], 0.0)
        for engine in engines:
            engine.publish = self._publish

    def meet(self, others: Iterable[SimulatedGateway]) -> None:
        """Forward requests to these gateways from now on."""
        self._beyond = {other.region: other for other in others}
        self.gateways = {name: PeerGateway(name, name, "") for name in self._beyond}

    def start(self, offset_s: float) -> None:
        """Start probing engines and calling other gateways, with an offset of `offset_s` from those."""
        for region in dict.fromkeys(engine.region for engine in self.engines.values()):
            self._clock.after(offset_s, self._probe, region)
        if self.gateways:
            self._clock.after(offset_s, self._beat)

    def check(self) -> None:
        """Raise AssertionError unless chain and router are consistent and have no request that has ended."""
        self.chain.check()
        self.router.check()
        unknown = [
            item.request.request_id for item in self.router.reservations if item.request.request_id not in self._open
        ]
        if unknown:
            raise AssertionError(f"{self.region} holds work for requests that have ended: {unknown}")

    @property
    def open_requests(self) -> int:
        """Number of requests that this gateway has and that have not ended."""
        return len(self._open)

    # -- requests

    def arrive(self, request: RegionRequest, origin: SimulatedGateway | None = None) -> None:
        """Decide on a request of a client, or of another region's gateway."""
        self._open[request.request_id] = request, origin
        asked = InferenceRequest(
            request.request_id,
            request.prompt.keys,
            request.prompt.tokens,
            BLOCK_TOKENS,
            self._clock.now,
            self.router.policy.ttft_slo_s,
            tenant_id=request.tenant,
            session_id=str(request.session_key),
            stays=origin is not None,
        )
        self._carry_out([self.chain.place(asked, self._clock.now)])

    def _carry_out(self, outcomes: Iterable[ChainOutcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Dispatched):
                self._dispatch(outcome.decision)
            elif isinstance(outcome, Elsewhere):
                self._forward(outcome)
            elif isinstance(outcome, Rejected):
                self._reject(outcome.request_id)
        self._set_wake()

    def _dispatch(self, decision: Decision) -> None:
        request, _ = self._open[decision.decision_id]
        engine = self.engines[decision.engine_id]
        if self._system.publishes_prefixes:
            self._prefixes.note(request.prompt.keys)
        if not self._system.follows_events:
            self.router.blocks_stored(engine.engine_id, request.prompt.keys)
        request.served_region = engine.region
        request.way_back_s += self._network.delay(engine.region, self.region)
        # Loss is between gateways: an engine's connection breaks, or delivers.
        self._clock.after(self._network.delay(self.region, engine.region), self._reach, engine, request)

    def _reach(self, engine: HostedEngine, request: RegionRequest) -> None:
        try:
            engine.arrive(request)
        except ValueError:
            # Larger than the engine's memory: an error status, after the way back.
            way_s = self._network.delay(engine.region, self.region)
            self._clock.after(way_s, self._end, request.request_id, Failed(request.request_id))

    def _forward(self, outcome: Elsewhere) -> None:
        request, _ = self._open[outcome.request_id]
        receiver = self._beyond[outcome.gateway]
        if self._network.send(self.region, receiver.region, receiver.receive, request, self, outcome.hop.rule):
            return
        # The connection is silent, and the other region has not begun.
        self._clock.after(SILENCE_S, self._observe, ForwardFailed(request.request_id))

    def receive(self, request: RegionRequest, origin: SimulatedGateway, rule: str) -> None:
        """Decide on a request that another region's gateway forwarded, as `rule` allows."""
        request.hops += 1
        request.allowed_by = rule
        request.way_back_s += self._network.delay(self.region, origin.region)
        self.arrive(request, origin)

    def _reject(self, request_id: str) -> None:
        """Return a request without an engine to where it came from: its client, or a gateway that decides again."""
        request, origin = self._open.pop(request_id)
        if origin is None:
            self._answered(request)
            return
        back_s = self._network.delay(self.region, origin.region)
        request.hops, request.allowed_by = 0, ""
        request.way_back_s -= back_s
        self._clock.after(back_s, origin._observe, ForwardFailed(request_id))

    def _end(self, request_id: str, observation: Completed | Failed) -> None:
        """End a request here and where it came from."""
        request, origin = self._open.pop(request_id)
        if origin is None:
            self._answered(request)
        else:
            self._clock.after(self._network.delay(self.region, origin.region), origin._end, request_id, observation)
        self._observe(observation)

    def _observe(self, observation: Observation) -> None:
        self._carry_out(self.chain.observe(observation, self._clock.now))

    def _set_wake(self) -> None:
        """Wake the chain when it has work. A reservation never expires here, so only queued requests need it."""
        if not (self.router.waiting or self.router.deferred):
            return
        due_s = self.chain.next_wake(self._clock.now)
        if due_s is None:
            return
        # Later than now: a wake due at once could repeat without end.
        self._timer.set_earlier(max(due_s, self._clock.now + _LEAST_WAIT_S))

    # -- engines

    def _publish(self, engine: HostedEngine, events: Sequence[EngineEvent]) -> None:
        kinds = _EVENTS if self._system.follows_events else _PROGRESS
        if kept := [event for event in events if isinstance(event, kinds)]:
            self._clock.after(self._network.delay(engine.region, self.region), self._learn, engine, kept)

    def _learn(self, engine: HostedEngine, events: Sequence[EngineEvent]) -> None:
        for event in events:
            if isinstance(event, BlocksStored):
                self.router.blocks_stored(engine.engine_id, event.keys)
            elif isinstance(event, BlocksRemoved):
                self.router.blocks_removed(engine.engine_id, event.keys)
            elif isinstance(event, FirstTokenEvent):
                self._observe(FirstToken(event.request_id))
            elif isinstance(event, Finished):
                request = engine.requests.pop(event.request_id)
                self._end(event.request_id, Completed(event.request_id, request.cached_tokens))

    def _probe(self, region: str) -> None:
        there = [engine for engine in self.engines.values() if engine.region == region]
        self._network.send(self.region, region, self._read, region, there)
        self._clock.after(self._system.report_s, self._probe, region)

    def _read(self, region: str, there: Sequence[HostedEngine]) -> None:
        loads = [(engine.engine_id, engine.engine.waiting, engine.room_tokens) for engine in there]
        self._network.send(region, self.region, self._report, loads)

    def _report(self, loads: Sequence[tuple[str, int, int]]) -> None:
        now = self._clock.now
        for engine_id, waiting, room_tokens in loads:
            outcomes = self.router.report(engine_id, waiting, now, room_tokens)
            self._carry_out(self.chain.followed(outcomes, now))
        if self.router.waiting:
            self._carry_out(self.chain.tick(now))

    # -- other regions

    def serving(self, served_model: str, now: float) -> Serving:
        """Return the reachable gateways by region, with the facts of their last heartbeat."""
        return {
            peer.region: [(peer, facts)]
            for peer in self.gateways.values()
            if peer.heartbeat is not None and peer.is_fresh(now)
            for facts in peer.heartbeat.services
        }

    def of_region(self, region: str) -> Sequence[PeerGateway]:
        """Return the gateways of a region."""
        return [peer for peer in self.gateways.values() if peer.region == region]

    def _beat(self) -> None:
        """Request a heartbeat from each peer, and decide again on waiting requests."""
        now = self._clock.now
        for name, peer in self.gateways.items():
            answer = partial(self._take_heartbeat, peer, now)
            self._network.send(self.region, name, self._beyond[name].call, peer.question({}), self.region, answer)
        self._carry_out(self.chain.heartbeat(now))
        self._clock.after(HEARTBEAT_S, self._beat)

    def call(self, call: HeartbeatCall, caller: str, answer: Callable[[Heartbeat], None]) -> None:
        """Send a heartbeat to the calling region's gateway."""
        load = pool_load(self.router, self._clock.now)
        facts = ServiceFacts(
            self.region, SERVED_MODEL, load.engines, load.available, load.queued, load.in_flight, 1, whole=True
        )
        prefixes = {}
        if self._system.publishes_prefixes:
            prefixes[self.region] = self._prefixes.since(call.prefixes.get(self.region, 0))
        heartbeat = Heartbeat(self.region, self.region, self._clock.now, (facts,), {}, {}, prefixes)
        self._network.send(self.region, caller, answer, heartbeat)

    def _take_heartbeat(self, peer: PeerGateway, asked_s: float, heartbeat: Heartbeat) -> None:
        now = self._clock.now
        peer.receive(heartbeat, asked_s, now, now)
        self._carry_out(self.chain.heartbeat(now))
