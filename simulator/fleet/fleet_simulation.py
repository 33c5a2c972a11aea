"""A whole fleet under a virtual clock: the production router, simulated engines, and requests that arrive.

The simulation calls the router exactly as the gateway does: it submits requests, sends dispatched ones to their engine,
observes first tokens and completions, reports stored and removed blocks, and wakes it when it is due. Events at the
same time are ordered: engines, then arriving transfers and fleet changes, then arriving requests in order, then the
wake. A run is therefore a function of its input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from kvstore.index.lower_tiers import CPU
from routing.chain.decider import Decider
from routing.router import Router
from routing.values.decision import ChainOutcome, Decision, Dispatched, Outcome, Queued, Rejected, id_of
from routing.values.load_options import Fetch
from routing.values.observation import Completed, Failed, Observation
from routing.values.observation import FirstToken as FirstTokenSeen
from simulator.engine_models.engine_events import (
    BlocksRemoved,
    BlocksStored,
    EngineEvent,
    Finished,
    FirstTokenEvent,
    PrefillStarted,
    TierChanged,
)
from simulator.engine_models.simulated_engine import PromptSequence, SimulatedEngine, TransferringEngine
from simulator.fleet.block_transfer import BlockTransfers, land
from simulator.fleet.cost_learning import CostLearning
from simulator.fleet.engine_slots import LoadReport, Station, Stations
from simulator.fleet.fleet_changes import (
    EngineDies,
    EngineDrains,
    EngineJoins,
    EngineWeighs,
    FleetChange,
    PolicyChanges,
)
from simulator.fleet.load_samples import LoadSamples
from simulator.fleet.request_record import FAILED, FINISHED, REJECTED, EventLog, RequestRecord
from simulator.kv_nodes.fleet_nodes import At, FleetNodes
from simulator.virtual_clock import VirtualClock
from simulator.workloads.arrivals import ArrivalSource

_WAKES_PER_S = 1000
"""Resolution of the router's timer, as in the gateway."""

PROBE_INTERVAL_S = 0.1
"""Maximum seconds between probes of an engine; it is also probed after each of its events."""

# Their order at one moment, so that a run is a function of its input.
_ENGINE, _LANDING, _CHANGE = 0, 1, 2

DecodeGate = Callable[[Router, str], bool]
"""Returns whether a request can decode on the engine (given by id) that has just finished its prefill."""
Watch = Callable[["FleetSimulation"], bool]
"""Checks a run once per sample; True ends the run."""
Happening = Callable[["FleetSimulation"], None]
"""An action at a virtual time."""


class FleetSimulation:
    """One run. Mutable: the routers, the stations, the clock with its events, and the records.

    `records` has the outcome of each request by id, `history` the same outcomes in order of arrival. Without
    `transfers`, engines send each other nothing and the router takes this into account, as in every live pool. `nodes`
    builds the node managers that store computed blocks; without it, there are none. `samples` are taken once more than
    `uncounted` requests have arrived and until the last one arrives. Load reports of engines reach the router
    `report_age_s` late; the router ignores reports that are too old for the policy. `others` are the routers of other
    gateways. They receive the same facts, but samples show the view of `router`.
    """

    def __init__(
        self,
        router: Router,
        source: ArrivalSource,
        build_engine: Callable[[], SimulatedEngine],
        engine_ids: Sequence[str],
        *,
        others: Sequence[Router] = (),
        changes: Iterable[FleetChange] = (),
        transfers: BlockTransfers | None = None,
        nodes: Callable[[At], FleetNodes] | None = None,
        samples: LoadSamples | None = None,
        uncounted: int = 0,
        report_age_s: float = 0.0,
        log: EventLog | None = None,
    ) -> None:
        self.router, self.routers = router, (router, *others)
        self.records: dict[str, RequestRecord] = {}
        self.history: list[RequestRecord] = []
        self.clock, self.unfinished = VirtualClock(), 0
        self.decode_gate: DecodeGate | None = None
        """If set, it rejects requests after their prefill, which early rejection avoids (Mooncake §4.3.2)."""
        self.samples = samples if samples is not None else LoadSamples()
        self._source, self._transfers = source, transfers
        self.stations = Stations(build_engine)
        self.nodes = None if nodes is None else nodes(lambda at_s, do: self.call_at(at_s, lambda _: do()))
        for one in self.routers:
            one.view.sending_until = None if transfers is None else transfers.sending_until
            one.follow_nodes(None if self.nodes is None else self.nodes.ledger)
        self._learning = CostLearning(router.policy, router.fleet.loading_costs)
        self._report_age_s, self._uncounted = report_age_s, uncounted
        self._next_sample_s, self._log = 0.0, log
        self._wake_s: float | None = None
        self._next_probe_s = 0.0
        for engine_id in engine_ids:
            self.stations.join(engine_id, 1.0)
        self._set_engines()
        for change in sorted(changes, key=lambda item: item.at_s):
            self.clock.at(change.at_s, self.change, change, rank=_CHANGE)

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self.clock.now

    def run(self, watch: Watch | None = None) -> None:
        """Run until all requests have arrived and ended, or until `watch` returns True."""
        source, clock = self._source, self.clock
        while True:
            arrival = source.next_time()
            if arrival is None and not self.unfinished:
                return
            arrival_s = math.inf if arrival is None else arrival
            due_s = clock.next_s
            if self._wake_s is None:
                self._wake_s = self._next_wake_s()
            wake_s = self._wake_s
            now = min(arrival_s, due_s, wake_s)
            if now == math.inf:
                raise AssertionError(f"{self.unfinished} requests stand and nothing will ever happen")
            while self._next_sample_s <= now:
                self._sample()
                if watch is not None and watch(self):
                    return
            if due_s <= now:
                clock.run_next()
                continue
            clock.now = now
            if self._next_probe_s <= now:
                self._probe()
            if arrival_s <= now:
                self._arrive()
            else:
                self._every(lambda router: router.tick(self.now))

    def call_at(self, at_s: float, happening: Happening) -> None:
        """Schedule an action at a future time, ordered like a fleet change. It does not prolong the run."""
        self.clock.at(at_s, happening, self, rank=_CHANGE)

    def stir(self, engine_id: str) -> None:
        """Recompute when an engine is due, after a change from outside."""
        self._schedule(self.stations.of(engine_id))

    def check(self) -> None:
        """Raise AssertionError unless router, engines, and records are consistent."""
        for router in self.routers:
            router.check()
        self.stations.check()
        if self.nodes is not None:
            self.nodes.check()
        unfinished = sum(item.finished_s is None and item.status == "unfinished" for item in self.records.values())
        if unfinished != self.unfinished or len(self.history) != len(self.records):
            raise AssertionError(f"{self.unfinished} unfinished requests are counted, not {unfinished}")

    # -- time

    def _next_wake_s(self) -> float:
        wakes = [router.next_wake(self.now) for router in self.routers if router.waiting or router.deferred]
        wake = min((item for item in wakes if item is not None), default=None)
        if wake is None:
            return math.inf
        # Rounded up, and always later than now: a wake due at once could repeat without end.
        return max(math.ceil(wake * _WAKES_PER_S), math.floor(self.now * _WAKES_PER_S) + 1) / _WAKES_PER_S

    def _sample(self) -> None:
        if not self._source.over and (len(self.history) > self._uncounted or not self._uncounted):
            self.samples.take(self.router.view, self._next_sample_s)
        self._next_sample_s += self.samples.every_s

    def _probe(self) -> None:
        """Report on all engines, like a prober with timely reports."""
        self._next_probe_s = self.now + PROBE_INTERVAL_S
        if self._learning.due(self.now):
            self._set_engines()
        for station in self.stations:
            self._report(station, probed=True)

    def _report(self, station: Station, *, probed: bool = False) -> None:
        """Report an engine's load to the router; only probes deliver delayed reports."""
        if not self._report_age_s:
            self.take_load(station.engine_id, station.load)
        elif probed:
            engine_id, load = station.engine_id, station.load
            self.call_at(self.now + self._report_age_s, lambda simulation: simulation.take_load(engine_id, load))

    def take_load(self, engine_id: str, load: LoadReport) -> None:
        """Deliver an engine's load report to the routers."""
        for router in self.routers:
            router.note_memory(engine_id, load.kv_usage)
        if self._report_age_s > self.router.policy.dispatch_limit.report_ttl_s:
            return
        self._every(lambda router: router.report(engine_id, load.waiting, self.now, load.room_tokens))

    def _every(self, call: Callable[[Router], list[Outcome]]) -> None:
        """Call each gateway's router, and apply the outcomes."""
        for router in self.routers:
            self.deliver(call(router))

    def _set_engines(self) -> None:
        facts = self.stations.facts()
        if self.nodes is not None:
            self.nodes.set_engines([fact.engine_id for fact in facts])
        facts = self._learning.facts(facts)
        self._every(lambda router: router.set_engines(facts, self.now))

    def _advance(self, station: Station, due_s: float) -> None:
        # An engine's earlier due times are outdated.
        if station.alive and station.due_s == due_s:
            station.due_s = None
            self._take_in(station, station.engine.advance(self.now))
            self._schedule(station)

    def _schedule(self, station: Station) -> None:
        due = station.engine.next_event_time()
        if due is not None and due != station.due_s and station.alive:
            station.due_s = due
            self.clock.at(due, self._advance, station, due, rank=_ENGINE)

    # -- requests

    def _arrive(self) -> None:
        arrival = self._source.take()
        request = arrival.request
        record = self.records[request.request_id] = RequestRecord(request, arrival.output_tokens)
        self.history.append(record)
        self.unfinished += 1
        self._note("arrives", request.request_id, "")
        self._submit(record)

    def _chain_of(self, _request_id: str) -> Decider:
        """Return the decision chain of the gateway that the request arrived at."""
        return self.router

    def _submit(self, record: RequestRecord) -> None:
        request = record.request
        self.deliver([self._chain_of(request.request_id).place(request, self.now)])

    def _observe(self, observation: Observation) -> None:
        self.deliver(self._chain_of(observation.request_id).observe(observation, self.now))

    def deliver(self, outcomes: Sequence[ChainOutcome]) -> None:
        """Apply a chain's outcomes. The next wake can change with any call of it."""
        self._wake_s = None
        for outcome in outcomes:
            record = self.records[id_of(outcome)]
            if isinstance(outcome, Dispatched):
                self._dispatch(record, outcome.decision)
            elif isinstance(outcome, Queued):
                record.engine_id = outcome.decision.engine_id
                self._note("waits", record.request.request_id, record.engine_id)
                if self.nodes is not None:
                    self.nodes.queued(record.request, outcome, self.now)
            elif isinstance(outcome, Rejected):
                self._note(f"rejected:{outcome.code}", outcome.request_id, "")
                self._end(record, REJECTED)

    def _dispatch(self, record: RequestRecord, decision: Decision) -> None:
        engine_id = decision.engine_id
        if record.engine_id not in ("", engine_id):
            record.migrations += 1
        record.engine_id = engine_id
        record.dispatched_s, record.compute_s = self.now, decision.compute_s
        self._learning.dispatched(decision, self.now)
        self._note("dispatched", record.request.request_id, engine_id)
        station = self.stations.of(engine_id)
        station.live[record.request.request_id] = record
        if decision.fetch is not None and self._transfers is not None:
            sender = self.stations.get(decision.fetch.source_engine_id)
            transfer = self._transfers.start(decision.fetch, record.request, sender, station, self.now)
            if transfer is not None:
                self.clock.at(transfer.lands_s, self._land, station, record, transfer.blocks, rank=_LANDING)
                return
        if decision.fetch is not None and self.nodes is not None and self._loads(decision.fetch, station, record):
            return
        self._send(station, record)

    def _loads(self, fetch: Fetch, station: Station, record: RequestRecord) -> bool:
        """Begin a load from a node manager; return False if there is nothing to wait for."""
        engine, request = station.engine, record.request
        if self.nodes is None or not fetch.node or not isinstance(engine, TransferringEngine):
            return False
        held = engine.held_blocks(request.keys[: fetch.blocks])
        budget_s = self.nodes.saved_s(request, held, fetch.blocks, station.speed)
        loading = self.nodes.load(fetch, request, station.engine_id, held, self.now, budget_s)
        if loading is None:
            return False
        self.clock.at(loading.ends_s, self._land, station, record, loading.blocks, rank=_LANDING)
        return True

    def _land(self, station: Station, record: RequestRecord, blocks: int) -> None:
        """Add arrived blocks, then start their request. Engine and request can both be gone by then."""
        request = record.request
        if not station.alive or station.live.get(request.request_id) is not record:
            return
        if self.nodes is not None:
            record.load_s = self.now - (record.dispatched_s or 0.0)
        record.transferred_tokens += land(station, request, blocks, self.now, self._take_in)
        self._note("landed", request.request_id, station.engine_id)
        self._send(station, record, blocks)

    def _send(self, station: Station, record: RequestRecord, loaded_blocks: int = 0) -> None:
        """Send a dispatched request to its engine; fail it if it can never run there (status 400 in production)."""
        request, output = record.request, record.output_tokens
        lengths = request.prompt_tokens, output, request.priority, loaded_blocks
        sequence = PromptSequence(request.request_id, request.keys, *lengths)
        try:
            station.engine.submit(sequence, self.now)
        except ValueError:
            del station.live[request.request_id]
            self._fail(record)
        else:
            self._schedule(station)

    def _fail(self, record: RequestRecord) -> None:
        self._note("failed", record.request.request_id, record.engine_id)
        self._end(record, FAILED)
        self._observe(Failed(record.request.request_id))

    def _take_in(self, station: Station, events: list[EngineEvent]) -> None:
        """Record an engine's events, and report to the routers what gateways would observe of them."""
        records, now, learning = self.records, self.now, self._learning
        self._report(station)
        for event in events:
            if isinstance(event, BlocksStored | BlocksRemoved | TierChanged):
                self._follow_cache(station.engine_id, event)
            elif isinstance(event, PrefillStarted):
                record = records[event.request_id]
                if record.hit_tokens is None:
                    record.hit_tokens = event.cached_tokens
                self._note("prefills", event.request_id, station.engine_id)
            elif isinstance(event, FirstTokenEvent):
                self._first_token(station, event)
            elif isinstance(event, Finished):
                record = records[event.request_id]
                record.finished_s = event.at_s
                del station.live[event.request_id]
                self._end(record, FINISHED)
                self._note("finished", event.request_id, station.engine_id)
                learning.completed(event.request_id, now, record.hit_tokens, record.output_tokens)
                self._observe(Completed(event.request_id, record.hit_tokens))

    def _follow_cache(self, engine_id: str, event: BlocksStored | BlocksRemoved | TierChanged) -> None:
        for router in self.routers:
            if isinstance(event, BlocksStored):
                router.blocks_stored(engine_id, event.keys)
            elif isinstance(event, BlocksRemoved):
                router.blocks_removed(engine_id, event.keys)
            else:
                router.fleet.change_tier(engine_id, CPU, True, event.stored)
                router.fleet.change_tier(engine_id, CPU, False, event.removed)
        if isinstance(event, BlocksStored) and self.nodes is not None and event.request_id and not event.loaded:
            end = event.first_block + len(event.keys)
            keys = self.records[event.request_id].request.keys[event.first_block : end]
            self.nodes.stored(engine_id, keys, event.parent, self.now)

    def _first_token(self, station: Station, event: FirstTokenEvent) -> None:
        record = self.records[event.request_id]
        if record.first_token_s is not None:
            return
        record.first_token_s = event.at_s
        self._note("first_token", event.request_id, station.engine_id)
        self._learning.first_token(event.request_id, event.at_s)
        self._observe(FirstTokenSeen(event.request_id))
        gate = self.decode_gate
        if gate is not None and record.output_tokens > 1 and not gate(self.router, station.engine_id):
            self._turn_away(station, record)

    def _turn_away(self, station: Station, record: RequestRecord) -> None:
        """Reject a request that cannot decode after its prefill, which is wasted."""
        request_id = record.request.request_id
        station.engine.abort(request_id, self.now)
        del station.live[request_id]
        self._note("rejected:after_prefill", request_id, station.engine_id)
        self._end(record, REJECTED)
        self._observe(Failed(request_id))

    def _end(self, record: RequestRecord, status: str) -> None:
        record.status = status
        self.unfinished -= 1
        if status != FINISHED:
            self._learning.dropped(record.request.request_id)
        self._source.ended(record.request.request_id, self.now)

    def _note(self, kind: str, request_id: str, engine_id: str) -> None:
        if self._log is not None:
            self._log.note(self.now, kind, request_id, engine_id)

    # -- the fleet

    def change(self, change: FleetChange) -> None:
        """Apply a fleet change now, regardless of its time."""
        if isinstance(change, PolicyChanges):
            self._note("policy", "", "")
            self._learning.adopt(change.policy)
            self._every(lambda router: router.set_policy(change.policy, router.policy_version + 1, self.now))
            return
        orphans: list[RequestRecord] = []
        if isinstance(change, EngineJoins):
            orphans = self.stations.join(change.engine_id, change.speed, change.role)
        elif isinstance(change, EngineDrains):
            self.stations.drain(change.engine_id)
        elif isinstance(change, EngineDies):
            orphans = self.stations.die(change.engine_id)
        elif isinstance(change, EngineWeighs):
            self.stations.weigh(change.engine_id, change.load_share)
            if change.rescue:
                orphans = self.stations.withdraw(change.engine_id, self.now)
                self.stir(change.engine_id)
        self._note(type(change).__name__, "", change.engine_id)
        self._set_engines()
        for record in orphans:
            self._orphan(record)

    def _orphan(self, record: RequestRecord) -> None:
        """Place a request again after its engine died. A request that already had its first token fails."""
        if record.first_token_s is not None:
            self._fail(record)
            return
        # First, since the router rejects an id that it still has.
        self._observe(Failed(record.request.request_id))
        record.engine_id, record.hit_tokens = "", None
        self._submit(record)
