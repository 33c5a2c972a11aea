"""One running pool: its engines, its router, and the connections between them.

Everything runs on the event loop's thread. The router is synchronous and never waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import zmq.asyncio

from gateway.access.isolation_domains import IsolationDomains
from gateway.base.event_log import log_event
from gateway.base.loop_lag import LoopLag
from gateway.base.metrics import GatewayMetrics
from gateway.base.settings import GatewaySettings
from gateway.contracts.engine_report import EngineReport
from gateway.contracts.snapshot import OBSERVE, EngineEntry, PoolEntry
from gateway.kv.moves.kv_moves import MoveScheduler, PoolMoves
from gateway.kv.nodes.kv_nodes import KvNodes
from gateway.kv.nodes.pool_loads import PoolLoads
from gateway.pools.engines.breaker import HALF_OPEN, OPEN
from gateway.pools.engines.health_verdict import shares_of
from gateway.pools.engines.live_engine import READY, LiveEngine
from gateway.pools.engines.model_names import ModelNames
from gateway.pools.engines.panic_threshold import excused_engines
from gateway.pools.events.event_ledger import EventLedger
from gateway.pools.events.event_salts import SaltsSeen
from gateway.pools.events.kv_event_intake import KvEventIntake
from gateway.pools.pool.dispatch_feed import DispatchFeed
from gateway.pools.pool.engine_tasks import EngineTasks
from gateway.pools.pool.index_feed import Continued, IndexFeed
from gateway.pools.pool.pool_progress import PoolProgress
from gateway.pools.pool.pool_rejections import PoolRejections
from gateway.pools.pool.pool_router import PoolRouter
from gateway.pools.pool.pool_shadow import PoolShadow
from gateway.pools.pool.rebalancing import Rebalancing
from gateway.pools.pool.retry_budget import RetryBudget
from gateway.pools.pool.router_driver import RouterDriver
from gateway.pools.traffic.outcome_tables import OutcomeTables
from gateway.pools.traffic.prefix_window import PrefixWindow
from gateway.pools.traffic.queue_window import QueueWindow
from gateway.pools.traffic.traffic_window import TrafficWindow
from gateway.pools.traffic.ttft_split import TtftSplit
from kvstore.keys.keyring import SecretKey
from routing.chain.ownership import ONLY, OWNER
from routing.cost.cost_fit import FittedCost
from routing.cost.cost_model import DecodeCost, PrefillCost
from routing.cost.cost_observer import CostObserver
from routing.ledger.fleet_view import EngineFacts
from routing.policy.policy_document import RoutingPolicy
from routing.rebalancing_overrides import sticky_placement_of
from routing.regions.region_view import PoolLoadReport
from routing.router import Router

if TYPE_CHECKING:
    from routing.chain.owner_decider import OwnerDecider
    from routing.chain.region_decider import RegionDecider


EXACT_KEYS = "exact"
_POLICY_FIELDS = ("policy", "policy_version")
_KEY_FIELDS = ("served_model", "key_source", "block_tokens", "block_bytes", "mode")


class LivePool:
    """One running pool.

    Mutable: `entry`, `engines`, the router's current facts, each engine's tasks and last incarnation, and since when
    lost engines are lost.
    """

    load_report: PoolLoadReport | None = None
    """Last report of the gateway that decides for the pool; None: this gateway decides, or no report has arrived."""

    owner: OwnerDecider | None = None
    """The chain's link to the gateway that owns the queue; None: there are no other gateways."""

    region: RegionDecider | None = None
    """The chain's link to other regions."""

    several_tenants = False
    """Whether keys of several tenants can use this pool."""

    def __init__(
        self,
        entry: PoolEntry,
        *,
        secret: SecretKey,
        settings: GatewaySettings,
        session: aiohttp.ClientSession,
        context: zmq.asyncio.Context,
        metrics: GatewayMetrics,
        lag: LoopLag,
        nodes: KvNodes,
        orders: MoveScheduler,
    ) -> None:
        self.domains = IsolationDomains(secret, entry)
        self.seed = self.domains.seed
        self.one_tenant = True
        """Whether only one tenant has keys."""
        self._follow(entry)
        max_bytes = settings.index_max_bytes
        self.router = Router(entry.pool_id, entry.policy, entry.policy_version, index_max_bytes=max_bytes)
        self.engines: dict[str, LiveEngine] = {}
        self.retry_budget = RetryBudget(entry.policy.retry_budget, entry.policy.min_retries)
        self.costs = _observer(entry.policy, self.router)
        self.traffic = TrafficWindow(settings.window_s, settings.window_max_results)
        self.outcomes = OutcomeTables()
        self.queue, self.names = QueueWindow(settings.window_s), ModelNames()
        self.progress = PoolProgress(lag.vouches)
        self.rejections = PoolRejections(
            self.engines, self.progress, settings.breaker, accepts=self.accepts, refresh=self.refresh
        )
        self.prefixes, self.ttft_split = PrefixWindow(), TtftSplit()
        """Prompt prefixes and TTFT parts for pages."""
        self.shadow = PoolShadow(self.router, metrics)
        self.loads, self.orders = PoolLoads(nodes, metrics), orders
        self.continued: Continued = lambda _parent, _keys: None
        self.sticky_placement = sticky_placement_of(self.router)
        """The placement, if it keeps prefixes on a few engines."""
        self._settings, self._metrics, self._session, self._context = settings, metrics, session, context
        self.lag = lag
        self._feed = DispatchFeed(
            self.router, self.engines, settings, feeds=self.fed_by_dispatches, refresh=self.refresh
        )
        self.moves = moves = PoolMoves(orders, entry.pool_id, self.loads.learned, plans=lambda: self.answers_at_once)
        last = PoolRouter(self.router, self._feed, self.queue, lag, moves)
        driver = self.driver = RouterDriver(last, settings.tick_s)
        # Aliases: each request calls them.
        self.decide, self.observe = driver.place, driver.observe
        self.take_observed, self.reject_waiting = driver.take_observed, driver.reject_waiting
        self.rebalancing = Rebalancing(self.router, driver.relieve)
        self._facts: tuple[EngineFacts, ...] = ()
        self.accepting: frozenset[str] = frozenset()
        """Engines that accept new work now."""
        self.unreachable_here: frozenset[str] = frozenset()
        """Engines that this gateway cannot reach, regardless of other gateways' reports."""
        self.at_slow_start_limit: frozenset[str] = frozenset()
        """Engines in probation that currently have their share of work."""
        self._tasks = EngineTasks()
        self._incarnations: dict[str, int] = {}
        self._lost_at: dict[str, float] = {}

    def _follow(self, entry: PoolEntry) -> None:
        """Store the entry, and the facts that each request needs from it."""
        self.entry = self.domains.entry = entry
        self.observes = entry.mode == OBSERVE
        """Whether other routers route the pool's requests and report them afterwards."""
        self.by_dispatches = entry.key_source != EXACT_KEYS or self.observes
        """Whether dispatches feed the index, because the keys are not those of events, or events precede observations.
        """

    def hides_load_from(self, witness: str) -> bool:
        """Return whether answers must not depend on engines' work. A request without `witness` may see it."""
        return bool(witness) and not self.entry.isolated

    def fed_by_dispatches(self, engine: LiveEngine) -> bool:
        """Return whether dispatches feed this engine's part of the index.

        They do so if they feed the pool's, or if the engine's events do not name the owners of blocks.
        """
        return self.by_dispatches or engine.salts_seen.missing or (self.entry.isolated and engine.intake is None)

    @property
    def answers_at_once(self) -> bool:
        """Whether a request that does not queue gets its engine at once: no other gateway is asked."""
        return self.owner is None or self.owner.epoch is None

    @property
    def knows_all(self) -> bool:
        """Whether this gateway knows the pool's whole load: it decides on all requests, or the owner reports."""
        return self.owner is None or self.owner.ownership.role in (OWNER, ONLY) or self.load_report is not None

    def serves(self, model: str) -> bool:
        """Return whether this is the served model or a name that an engine serves. Empty matches any model."""
        return model in ("", self.entry.served_model) or bool(self.names.engines(model))

    def accepts(self, engine_id: str) -> bool:
        """Return whether the engine accepts new work now."""
        return engine_id in self.accepting

    # -- topology and health

    def apply(self, entry: PoolEntry, engines: Sequence[EngineEntry]) -> None:
        """Apply a new version of the pool. Unchanged engines are not disturbed.

        If the policy cannot run, change nothing and raise the router's error.
        """
        now = time.monotonic()
        # First: it raises where the policy of an arm cannot run, and nothing has changed by then.
        arms = self.router.arms.built(entry.arms, entry.policy.order.name)
        policy = entry.policy if self.one_tenant else entry.policy.fair_to_tenants()
        if _differ(entry, self.entry, _POLICY_FIELDS) or policy != self.router.policy:
            self.driver.set_policy(policy, entry.policy_version)
            if self.region is not None:
                self.region.adopt(policy)
            self.sticky_placement = sticky_placement_of(self.router)
            self.retry_budget.limit(entry.policy.retry_budget, entry.policy.min_retries)
            if _differ(entry.policy, self.entry.policy, ("prefill_cost", "decode_cost")):
                self.costs = _observer(entry.policy, self.router)
        self.router.arms.attempt(arms, entry.arm)
        self.router.cold.adopt(entry.start_s)
        rekeyed = _differ(entry, self.entry, _KEY_FIELDS)
        other_model = _differ(entry, self.entry, ("served_model",))
        self._follow(entry)
        wanted = {engine.engine_id: engine for engine in engines}
        for engine_id in [known for known in self.engines if known not in wanted or other_model]:
            self._drop(engine_id)
            self.traffic.forget(engine_id)
        for engine_id in sorted(wanted):
            self._apply_engine(wanted[engine_id], now)
        if rekeyed:
            self._rekey()
        kinds = {name: (live.entry.kind, live.entry.speed) for name, live in self.engines.items()}
        self.costs.set_engines(kinds, entry.costs)
        self.shadow.follow(entry, time.time())
        self.router.follow_nodes(self.loads.follow(entry, engines))
        self._follow_models()
        self.refresh()

    def refresh(self) -> None:
        """Recompute the facts of all engines, and pass them to the router if they changed."""
        excused = excused_engines(self.engines.values())
        well = {
            engine_id
            for engine_id, engine in self.engines.items()
            if engine.entry.desired_state == READY and (engine.breaker.accepts or engine_id in excused)
        }
        self.unreachable_here = frozenset(
            name for name, live in self.engines.items() if live.entry.desired_state == READY and name not in well
        )
        shares = shares_of(self.engines.values(), well, time.time())
        for engine_id, engine in self.engines.items():
            engine.shunned = shares.get(engine_id, 1.0) == 0.0
        self._feed.feeds_any = any(self.fed_by_dispatches(engine) for engine in self.engines.values())
        facts = tuple(
            engine.facts(
                by_dispatches=self.fed_by_dispatches(engine),
                accepts=engine_id in well
                and shares.get(engine_id, 1.0) > 0
                and engine_id not in self.at_slow_start_limit,
                learned=self._learned(engine),
                share=shares.get(engine_id, 1.0),
            )
            for engine_id, engine in sorted(self.engines.items())
        )
        if facts != self._facts:
            self._facts = facts
            self.accepting = frozenset(fact.engine_id for fact in facts if fact.accepts)
            self.driver.set_engines(facts)

    def _learned(self, engine: LiveEngine) -> FittedCost | None:
        """Return the learned cost of the engine's kind, if the policy uses it and it is better."""
        fitted = self.entry.costs.get(engine.entry.kind) if self.entry.policy.cost == "fitted" else None
        return fitted if fitted is not None and fitted.better else None

    def take_report(self, report: EngineReport) -> None:
        """Apply the prober's report on one engine. Unknown engines are ignored."""
        engine = self.engines.get(report.engine_id)
        if engine is None:
            return
        if not report.readable and (engine.report is None or engine.report.readable):
            self._metrics.unreadable_reports.inc(report.engine_id)
        if report.kv_usage is not None:
            self.router.note_memory(report.engine_id, report.kv_usage)
        if report.adapters is not None:
            self.router.fleet.note_adapters(report.engine_id, report.adapters, report.max_adapters)
        # An older report of waiting work does more harm than none (decision 12).
        if report.waiting is not None and time.time() - report.at <= self.entry.policy.dispatch_limit.report_ttl_s:
            self.driver.report(report.engine_id, report.waiting, report.room_tokens)
        if engine.take_report(report, time.monotonic(), time.time()):
            log_event("engine_restarted", engine=report.engine_id, evidence="process start changed")
            self._new_incarnation(engine, resync=True)
            self.refresh()

    async def stop(self) -> None:
        """End all tasks and reject the waiting requests."""
        self.driver.stop()
        for engine_id in list(self.engines):
            self._drop(engine_id)
        await self._tasks.ended()

    # -- arrival and departure of engines

    def _apply_engine(self, entry: EngineEntry, now: float) -> None:
        live = self.engines.get(entry.engine_id)
        if live is not None and _differ(live.entry, entry, ("url", "key_variable", "rank")):
            self._drop(entry.engine_id)
            live = None
        if live is None:
            self._add(entry, now)
            return
        before, live.entry = live.entry, entry
        if _differ(entry, before, ("kv_events_endpoint", "kv_replay_endpoint")):
            self._drop_intake(live)
            self.router.blocks_cleared(entry.engine_id)
            self._start_intake(live)

    def _add(self, entry: EngineEntry, now: float) -> None:
        engine_id = entry.engine_id
        # Kept after an engine leaves: when it returns, what was dispatched to its earlier process is not its own.
        incarnation = self._incarnations.get(engine_id, 0) + 1
        self._incarnations[engine_id] = incarnation
        engine = LiveEngine(
            entry,
            incarnation,
            served_model=self.entry.served_model,
            session=self._session,
            settings=self._settings,
            lag=self.lag,
            now=now,
            signs=lambda: self.progress.engine(engine_id).signs,
        )
        engine.breaker.on_change = lambda: self._breaker_changed(engine)
        engine.on_models = self._follow_models
        if entry.rank is not None:
            engine.breaker.on_doubt = lambda: self._doubt(entry.url)
        self.engines[engine_id] = engine
        self._tasks.start(engine_id, f"health of {engine_id}", engine.watch)
        self._start_intake(engine)

    def _follow_models(self) -> None:
        self.names.follow(self.entry.served_model, self.engines)

    def _doubt(self, url: str) -> None:
        """Probe all ranks of one process, because a fault of one rank can affect all."""
        for engine in self.engines.values():
            if engine.entry.url == url:
                engine.probe_now()

    def _drop(self, engine_id: str) -> None:
        engine = self.engines.pop(engine_id)
        # Requests that still run there go on reporting to its breaker.
        engine.breaker.on_change = None
        self._lost_at.pop(engine_id, None)
        self.progress.forget(engine_id, left=True)
        self._tasks.end(engine_id)

    def set_copies(self, prefix: int, copies: int, now: float) -> int:
        """Order the moves after which `copies` nodes hold a recent prefix; return their number. Only its owner does."""
        keys, requests = self.prefixes.ending_at(prefix)
        if not keys or not self.answers_at_once:
            return 0
        return self.moves.set_copies(keys, copies, requests, self.entry.block_tokens, now)

    def _start_intake(self, engine: LiveEngine) -> None:
        entry = engine.entry
        if self.by_dispatches or not entry.kv_events_endpoint:
            return
        engine.salts_seen = SaltsSeen()
        feed = IndexFeed(self.router, engine, self.engine_restarted, self.domains.media_blocks, self.continued)
        ledger = EventLedger(feed, self.seed, self.entry.block_tokens, self._settings.events)
        try:
            engine.intake = KvEventIntake(
                entry.engine_id,
                entry.kv_events_endpoint,
                entry.kv_replay_endpoint,
                ledger,
                self._context,
                self._settings.events,
                self.refresh,
            )
        except ValueError as error:
            log_event("kv_events_rejected", level=logging.ERROR, engine=entry.engine_id, error=str(error))
            return
        self._tasks.start(entry.engine_id, f"events of {entry.engine_id}", engine.intake.run)

    def _drop_intake(self, engine: LiveEngine) -> None:
        engine.intake = None
        self._tasks.end_readers(engine.entry.engine_id)

    def _rekey(self) -> None:
        """Reset all indexes, because the meaning of keys changed."""
        self.domains.forget()
        self._feed.clear()
        for engine_id, engine in self.engines.items():
            self._drop_intake(engine)
            engine.hits.forget()
            self.router.blocks_cleared(engine_id)
            self._start_intake(engine)

    # -- changes of health

    def _breaker_changed(self, engine: LiveEngine) -> None:
        breaker = engine.breaker
        engine_id = engine.entry.engine_id
        level = logging.WARNING if breaker.state == OPEN else logging.INFO
        log_event("breaker", level=level, engine=engine_id, state=breaker.state, reason=breaker.reason)
        if breaker.state == OPEN:
            self._metrics.breaker_trips.inc(engine_id, breaker.cause)
        if breaker.away:
            # Kept over further failures until it accepts again: the process may have ended at the first.
            self._lost_at.setdefault(engine_id, breaker.since)
        elif breaker.accepts:
            # An engine that answers earlier requests is no new process.
            lost_at = self._lost_at.pop(engine_id, None)
            if breaker.state == HALF_OPEN and lost_at is not None and not engine.incarnated_since(lost_at):
                self._new_incarnation(engine, resync=True)
        self.refresh()

    def engine_restarted(self, engine: LiveEngine) -> None:
        """Count a restart that the engine's event numbers reveal. Its intake requests the new history itself."""
        log_event("engine_restarted", engine=engine.entry.engine_id, evidence="event numbers started again")
        self._new_incarnation(engine, resync=False)
        self.refresh()

    def _new_incarnation(self, engine: LiveEngine, *, resync: bool) -> None:
        engine.new_incarnation(time.monotonic())
        self.progress.forget(engine.entry.engine_id)
        self.progress.restarted(engine.entry.engine_id)
        self._incarnations[engine.entry.engine_id] = engine.incarnation
        if resync and engine.intake is not None:
            engine.intake.resync()


def _observer(policy: RoutingPolicy, router: Router) -> CostObserver:
    """Return a new observer, which teaches the router the costs of loading."""
    written = PrefillCost.of(policy.prefill_cost), DecodeCost.of(policy.decode_cost)
    return CostObserver(*written, router.fleet.loading_costs)


def _differ(one: msgspec.Struct, other: msgspec.Struct, fields: tuple[str, ...]) -> bool:
    return any(getattr(one, field) != getattr(other, field) for field in fields)
