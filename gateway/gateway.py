"""The gateway: applies snapshots, runs pools, and publishes samples."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import msgspec
import zmq.asyncio

from gateway.access.authentication import PoolTenants
from gateway.access.key_quota import KeyQuotas
from gateway.access.revoked_keys import RevokedKeys
from gateway.base import background
from gateway.base.event_log import log_event
from gateway.base.loop_lag import LoopLag
from gateway.base.metrics import GatewayMetrics
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import Bus, subscribe_on_loop
from gateway.bus.snapshot_store import SnapshotStore
from gateway.contracts.engine_report import TOPIC_PREFIX, EngineReport, decode_report
from gateway.contracts.kv_move import MAX_ROWS, REPLICAS, encode_orders
from gateway.contracts.kv_move import TOPIC as KV_ORDERS
from gateway.contracts.rebalance_order import TOPIC_PREFIX as REBALANCE_PREFIX
from gateway.contracts.rebalance_order import decode_order
from gateway.contracts.snapshot import ApiKeyEntry, EngineEntry, PoolEntry, Snapshot, as_live, decode_snapshot
from gateway.contracts.wire import UnreadableMessageError
from gateway.kv.moves.kv_moves import MoveScheduler
from gateway.kv.moves.replica_orders import ReplicaOrders
from gateway.kv.nodes.kv_nodes import KvNodes
from gateway.peering import Peering
from gateway.peers.links.peer_calls import PeerCalls
from gateway.peers.links.request_claims import NamedRequests
from gateway.peers.regions.regions import Regions
from gateway.pools.engines.connections.engine_connections import EngineConnections
from gateway.pools.engines.engine_session import engine_session
from gateway.pools.engines.report_fence import ReportFence
from gateway.pools.pool.health_watch import HealthWatch
from gateway.pools.pool.live_pool import LivePool
from gateway.pools.pool.pool_roles import warn_of_roles
from gateway.pools.pool.recent_decisions import RecentDecisions
from gateway.pools.pool.request_listener import RequestListener
from gateway.pools.pool.service import Service
from gateway.pools.services.named_service import Services
from gateway.reports.arm_results import ArmResults
from gateway.reports.cache_locality_sampler import CacheLocalitySampler
from gateway.reports.cost_reports import CostReports
from gateway.reports.fleet_sampler import FleetSampler
from gateway.reports.key_usage import KeyUsage
from gateway.reports.request_outbox import RequestOutbox
from gateway.reports.shadow_reports import report_shadows
from gateway.reports.unserved_reports import UnservedReports
from gateway.requests.advisories.advisories import Advisories
from gateway.requests.advisories.advisory_exchange import SWEEP_S, AdvisoryExchange
from gateway.requests.advisories.advisory_tally import AdvisoryTally
from gateway.requests.advisories.agent_advisor import AgentAdvisor
from gateway.server.http.request_head import TaggedIds
from gateway.usage.usage_ledger import SHIP_S, UsageLedger
from gateway.usage.usage_messages import STATE_TOPIC
from kvstore.keys.keyring import Keyring
from routing.advisories.call_graph import NO_AGENTS

FEEDBACK_CALLS = 4
"""Reports that a key can send per allowed request: one of each kind, and one repetition."""
KV_ORDERS_S = 1.0
"""Interval at which KV block moves are judged and reported."""
SNAPSHOT_TOPIC = "snapshot"
"""Last-value bus topic of the encoded Snapshot."""
_IDLE_S = 4.0
"""Seconds to keep an idle connection. vLLM and SGLang close theirs after 5 s, and a request sent then would fail."""


class Gateway:
    """One gateway; mutable. `start` and `stop` run on the loop that serves its requests; only its thread changes it."""

    def __init__(self, bus: Bus, *, keyring: Keyring, state_dir: Path, settings: GatewaySettings) -> None:
        self.settings = settings
        self.metrics = GatewayMetrics()
        self.lag = LoopLag(lambda lag_s: self.metrics.loop_lag.note((), lag_s))
        self.pools: dict[str, LivePool] = {}
        self.snapshot: Snapshot | None = None
        self.has_approximate_pool = False
        """Whether a pool derives keys from prompt text; the others use an engine's tokenizer."""
        self.session: aiohttp.ClientSession | None = None
        self.engine_connections = EngineConnections(_IDLE_S)
        self.key_quotas = KeyQuotas(self.metrics.key_limited)
        self.feedback_quotas = KeyQuotas(self.metrics.key_limited, calls="reports", per_request=FEEDBACK_CALLS)
        self.key_usage = KeyUsage(bus)
        self.usage = UsageLedger(bus, state_dir, self.metrics)
        self.cost_reports = CostReports(bus, self.pools.values, self.metrics.cost_samples)
        self.arm_results = ArmResults(bus, self.metrics)
        self.recent = RecentDecisions()
        self.requests = RequestOutbox(
            bus,
            lambda: self.snapshot,
            self.metrics,
            keyring.used,
            self.recent,
            kept_per_s=settings.decisions_kept_per_s,
            interval_s=settings.request_interval_s,
            records_traffic=settings.recording,
        )
        self.new_id = TaggedIds()
        """Generates the ids of this gateway's requests and decisions."""
        self.peers = PeerCalls(bus, self.new_id)
        self.peering = Peering(bus, settings.peers, self.new_id.tag, keyring, state_dir, self.metrics)
        self.named_requests = NamedRequests(bus, self.peers, keyring)
        self._bus = bus
        self.keyring = keyring
        """The fleet's secrets. Block keys and cache salts depend on the current one."""
        self.kv_nodes = KvNodes(settings.kv_access, self.metrics)
        self.kv_moves = MoveScheduler(self.kv_nodes, settings.kv_access, self.metrics)
        tally = AdvisoryTally(self.metrics, self.new_id.tag)
        self.advisories = Advisories(self.pools, self.kv_moves, tally, self.lag, decides=self.peering.decides)
        self.advisory_exchange = AdvisoryExchange(bus, self.advisories, self.new_id.tag)
        self._store = SnapshotStore(state_dir, settings.snapshot_max_age_s)
        self._revoked = RevokedKeys(bus, state_dir, self._apply_again)
        self._context: zmq.asyncio.Context | None = None
        self._from_disk = False
        self._served_version = 0
        """Highest snapshot version that it has served, including before restarts."""
        self._confirmed_s = time.monotonic()
        """Time when the bus last confirmed the API keys."""
        self._report_fence = ReportFence()
        self.services = Services()
        self._pool_of_engine: dict[str, LivePool] = {}
        self._api_keys: dict[str, ApiKeyEntry] = {}
        self._keys_by_id: dict[str, ApiKeyEntry] = {}
        self._unsubscribe, self._tasks = list[Callable[[], None]](), list[asyncio.Task[None]]()
        self._stopping_pools: set[asyncio.Task[None]] = set()
        self._saved = asyncio.Event()
        self._share()
        self._cache_locality = CacheLocalitySampler(bus, self.pools.values)
        self.health = HealthWatch(self.pools.values, self.lag, settings)
        self._sampler = self._make_sampler(bus)

    def _share(self) -> None:
        parts = (self._apply_again, (self.key_quotas, self.feedback_quotas), self.advisories)
        self.peering.share(self.pools.values, lambda: self.snapshot, lambda: self.session, *parts)

    def _make_sampler(self, bus: Bus) -> FleetSampler:
        return FleetSampler(
            bus,
            self.pools.values,
            lambda: self.snapshot_version,
            self.metrics,
            self.settings,
            self.lag,
            self.peering.owners,
            self.peering.region_samples,
        )

    @property
    def regions(self) -> Regions | None:
        """Return the communication between regions, None if this gateway serves all regions alike."""
        return self.peering.regions

    @property
    def snapshot_version(self) -> int:
        """Return the version of the active snapshot, 0 if there is none yet."""
        return self.snapshot.version if self.snapshot is not None else 0

    def listeners(self) -> tuple[RequestListener, ...]:
        """Return the parts of the gateway that follow requests, in order."""
        regions = () if self.regions is None else (self.regions,)
        agents = AgentAdvisor(lambda: self.snapshot.call_graph if self.snapshot else NO_AGENTS, self.advisory_exchange)
        return (self.usage, self.health.ended_hits, self.requests, self.arm_results, *regions, self.advisories, agents)

    async def start(self) -> None:
        """Serve the bus's snapshot or the last-known-good one. Return after its engines were probed once."""
        self.session = engine_session(keepalive_s=_IDLE_S, connect_s=self.settings.connect_timeout_s)
        self._context = zmq.asyncio.Context()
        stored = await asyncio.to_thread(self._store.load, time.time())
        # Before the bus is read: an older snapshot there comes from a restored database (decision 41).
        self._served_version = stored.version if stored is not None else 0
        await self.peering.listen()
        # Before any snapshot: it may still have keys that were revoked while the database could not be written.
        self._tasks.append(await self._revoked.start())
        await self.usage.start()
        if (value := self._bus.latest(SNAPSHOT_TOPIC)) is not None:
            self._take_snapshot(value)
        if self.snapshot is None and stored is not None:
            self._restore(stored)
        self.usage.resume(self._bus.latest(STATE_TOPIC))
        self.peers.start()
        self.advisory_exchange.start()
        self._unsubscribe = [
            subscribe_on_loop(self._bus, SNAPSHOT_TOPIC, self._take_snapshot),
            subscribe_on_loop(self._bus, TOPIC_PREFIX, self._take_report),
            subscribe_on_loop(self._bus, REBALANCE_PREFIX, self._take_rebalance),
            subscribe_on_loop(self._bus, REPLICAS, ReplicaOrders(self.pools).take),
            subscribe_on_loop(self._bus, STATE_TOPIC, self.usage.take_state),
        ]
        self._tasks += self.peering.join()
        self._tasks += [
            background.start("loop lag", self.lag.run),
            background.start("last-known-good", self._keep_confirmed),
            *self._reports(),
        ]
        await self._first_probes()

    def _reports(self) -> list[asyncio.Task[None]]:
        """Start the periodic evaluations and reports."""
        settings, every = self.settings, background.every
        return [
            every("engine health", settings.sample_interval_s, self.health.evaluate, at_once=True),
            every("fleet samples", settings.sample_interval_s, self._sampler.publish, at_once=True),
            every("cache_locality", settings.cache_locality_interval_s, self._cache_locality.publish),
            every("usage", SHIP_S, self.usage.tick, at_once=True),
            every("key usage", settings.key_usage_interval_s, self.key_usage.report),
            every("learned costs", settings.cost_report_interval_s, self.cost_reports.report),
            every(
                "shadow policies",
                settings.shadow_report_interval_s,
                lambda: report_shadows(self._bus, self.pools.values()),
            ),
            every("results of arms", settings.arm_report_interval_s, self.arm_results.report),
            every("request log", settings.request_interval_s, self.requests.flush),
            every("KV orders", KV_ORDERS_S, self._judge_kv_moves),
            every("advisories", SWEEP_S, self.advisory_exchange.tick),
        ]

    def _judge_kv_moves(self) -> None:
        self.kv_moves.sweep()
        self._report_kv_moves()

    def _report_kv_moves(self) -> None:
        if rows := self.kv_moves.book.take_rows(MAX_ROWS):
            self._bus.append(KV_ORDERS, encode_orders(rows))

    async def stop(self) -> None:
        """End all tasks and connections. Waiting requests are rejected."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = []
        self._revoked.stop()
        await self.peers.stop()
        await self.peering.leave()
        self.advisory_exchange.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._stopping_pools, return_exceptions=True)
        self._tasks = []
        self.key_usage.report()
        report_shadows(self._bus, self.pools.values())
        await asyncio.gather(*(pool.stop() for pool in self.pools.values()))
        await self.kv_moves.stop()
        self._report_kv_moves()
        await self.kv_nodes.stop()
        await self.services.close()
        # After the pools: the requests that they rejected belong to the log.
        await self.requests.flush(last=True)
        await self.usage.stop()
        self.pools.clear()
        self.snapshot = None
        if self.session is not None:
            await asyncio.gather(self.session.close(), self.engine_connections.close())
        if self._context is not None:
            self._context.destroy(linger=0)  # ZeroMQ would otherwise wait for unsent messages without a limit.

    def service_for(self, caller: ApiKeyEntry, model: str) -> Service | None:
        """Return the pools that serve this model, None if there are none or the caller's tenant must not use it."""
        return self.services.of(model, caller.served_models, self.pools.values(), self.peering.home)

    def reject_waiting(self, code: str) -> None:
        """Reject the requests that wait for an engine."""
        for pool in self.pools.values():
            pool.reject_waiting(code)

    def api_key(self, sha256: str) -> ApiKeyEntry | None:
        """Return the API key with this SHA-256 (hex), None if it is unknown or its confirmation has expired."""
        return None if self._keys_are_old() else self._api_keys.get(sha256)

    def key_with_id(self, key_id: str) -> ApiKeyEntry | None:
        """Return the API key with this id, None if it is unknown or its confirmation has expired."""
        return None if self._keys_are_old() else self._keys_by_id.get(key_id)

    def _keys_are_old(self) -> bool:
        """Return whether the keys were unconfirmed for so long that a revocation may have been missed."""
        return not self._bus.connected and time.monotonic() - self._confirmed_s > self.settings.snapshot_max_age_s

    def _log_old_keys(self) -> None:
        if self.snapshot is None or not self._keys_are_old():
            return
        # Admissions end with the snapshot that they were made under.
        self.snapshot = msgspec.structs.replace(self.snapshot)
        log_event(
            "api_keys_rejected",
            level=logging.ERROR,
            confirmed_s_ago=round(time.monotonic() - self._confirmed_s),
            remedy="the API keys were not confirmed for too long; make Redis reachable",
        )

    def _take_snapshot(self, value: bytes) -> None:
        try:
            snapshot = decode_snapshot(value)
        except UnreadableMessageError as error:
            log_event("snapshot_rejected", level=logging.ERROR, reason=str(error))
            self.metrics.rejected_snapshots.inc("unreadable")
            return
        # One from the disk is taken again: the bus confirms it, and with it the API keys.
        if snapshot == self.snapshot and not self._from_disk:
            return
        if snapshot.version < self._served_version:
            # Of a database that was restored: it continues above our version as soon as it learns of it.
            log_event("snapshot_ignored", level=logging.WARNING, version=snapshot.version, served=self._served_version)
            self.metrics.rejected_snapshots.inc("older")
            return
        self._apply(snapshot)
        self._from_disk = False
        self._saved.set()

    def _take_report(self, value: bytes) -> None:
        try:
            report: EngineReport = decode_report(value)
        except UnreadableMessageError as error:
            log_event("report_rejected", level=logging.WARNING, reason=str(error))
            return
        if (pool := self._pool_of_engine.get(report.engine_id)) is not None and self._report_fence.admits(report):
            pool.take_report(report)

    def _take_rebalance(self, value: bytes) -> None:
        try:
            order, widened = decode_order(value)
        except UnreadableMessageError as error:
            log_event("rebalance_rejected", level=logging.WARNING, reason=str(error))
            return
        if (pool := self.pools.get(order.pool_id)) is not None:
            pool.rebalancing.follow(order, widened, time.time())

    def _apply(self, snapshot: Snapshot) -> None:
        """Activate `snapshot`. A pool whose part cannot run keeps its state."""
        self.snapshot = snapshot = self._revoked.without(snapshot)
        self.has_approximate_pool = any(entry.key_source == "approximate" for entry in snapshot.pools)
        self._served_version = snapshot.version
        engines_of: dict[str, list[EngineEntry]] = {}
        for engine in snapshot.engines:
            engines_of.setdefault(engine.pool_id, []).append(engine)
        wanted = {entry.pool_id for entry in snapshot.pools}
        for pool_id in [known for known in self.pools if known not in wanted]:
            self._end_pool(self.pools.pop(pool_id))
        self.kv_nodes.apply(snapshot.kv_nodes)
        tenants = PoolTenants(snapshot.api_keys)
        for entry in snapshot.pools:
            served = self.peering.serves(entry.region)
            self._apply_pool(entry, engines_of.get(entry.pool_id, []) if served else [], tenants)
        self._api_keys = {key.sha256: key for key in snapshot.api_keys}
        # The entry with the secret in use follows that of the previous secret.
        self._keys_by_id = {key.key_id: key for key in snapshot.api_keys}
        self.usage.apply(snapshot)
        self.key_quotas.keep_only(snapshot.api_keys)
        self.feedback_quotas.keep_only(snapshot.api_keys)
        self._index_pools()
        log_event("snapshot_applied", version=snapshot.version, pools=len(self.pools), engines=len(snapshot.engines))

    def _apply_pool(self, entry: PoolEntry, engines: list[EngineEntry], tenants: PoolTenants) -> None:
        entry, said = as_live(entry)
        if said:
            log_event("baseline_replaced", level=logging.WARNING, pool=entry.pool_id, reason=said)
        try:
            pool = self.pools.get(entry.pool_id) or self._make_pool(entry)
            pool.one_tenant, pool.several_tenants = tenants.only_one, tenants.share(entry.served_model)
            pool.apply(entry, engines)
        except ValueError as error:
            log_event("pool_rejected", level=logging.ERROR, pool=entry.pool_id, reason=str(error))
            return
        if pool is not self.pools.get(entry.pool_id):
            self.peering.link(pool)
        self.pools[entry.pool_id] = pool
        warn_of_roles(entry.pool_id, engines)

    def _make_pool(self, entry: PoolEntry) -> LivePool:
        if self.session is None or self._context is None:
            raise RuntimeError("the gateway is not started; await start() first")
        pool = LivePool(
            entry,
            secret=self.keyring.used,
            settings=self.settings,
            session=self.session,
            context=self._context,
            metrics=self.metrics,
            lag=self.lag,
            nodes=self.kv_nodes,
            orders=self.kv_moves,
        )
        pool.continued, router = self.advisories.sessions.continued, pool.router
        router.arms.resume(self._store.learned.get(entry.pool_id, b""))
        router.cold.on_demand = UnservedReports(pool, self._bus).report
        return pool

    def _apply_again(self) -> None:
        """Apply the snapshot again, with the regions this gateway serves now and without keys revoked since."""
        if self.snapshot is not None:
            self._apply(self.snapshot)

    def _end_pool(self, pool: LivePool) -> None:
        task = asyncio.create_task(pool.stop(), name=f"end of {pool.entry.pool_id}")
        self._stopping_pools.add(task)
        task.add_done_callback(self._stopping_pools.discard)

    def _index_pools(self) -> None:
        entries = self.snapshot.services if self.snapshot is not None else ()
        self.services.rebuild(self.pools, entries, self.peering.home)
        self._pool_of_engine = {engine_id: pool for pool in self.pools.values() for engine_id in pool.engines}

    def _restore(self, stored: Snapshot) -> None:
        log_event("last_known_good_served", version=stored.version)
        self._from_disk = True
        # A start gives keys no new time: they expire as if the gateway had run on.
        self._confirmed_s = time.monotonic() - self._store.age_s
        self._apply(stored)

    async def _first_probes(self) -> None:
        engines = [engine for pool in self.pools.values() for engine in pool.engines.values()]
        waits = [asyncio.create_task(engine.probed.wait()) for engine in engines]
        if waits:
            _, late = await asyncio.wait(waits, timeout=self.settings.first_probe_s)
            for task in late:
                task.cancel()

    async def _keep_confirmed(self) -> None:
        """Write the snapshot after each change, and again while the bus confirms that it is active."""
        while True:
            try:
                async with asyncio.timeout(self.settings.snapshot_refresh_s):
                    await self._saved.wait()
            except TimeoutError:
                if not self._bus.connected:
                    self._log_old_keys()
                    continue
            self._saved.clear()
            if self.snapshot is None or self._from_disk:
                continue
            # Before the write, since a full disk must not age the keys.
            self._confirmed_s = time.monotonic()
            try:
                learned = {name: pool.router.arms.kept() for name, pool in self.pools.items()}
                await asyncio.to_thread(self._store.save, self.snapshot, time.time(), learned)
            except OSError as error:
                log_event(
                    "last_known_good_not_saved",
                    level=logging.ERROR,
                    reason=error.strerror or type(error).__name__,
                    remedy="make the state directory writable; serving continues",
                )
