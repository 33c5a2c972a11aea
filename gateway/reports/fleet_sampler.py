"""Samples all pools twice a second, publishes the sample, and sets the gauges from it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection

import msgspec
from msgspec.structs import replace

from gateway.base.loop_lag import LoopLag
from gateway.base.metrics import GatewayMetrics
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import Bus
from gateway.contracts.fleet_sample import (
    STATES,
    TOPIC,
    EngineSample,
    FleetSample,
    Lateness,
    PoolRole,
    PoolSample,
    PoolTotals,
    RegionSample,
    TierSample,
    encode_sample,
)
from gateway.peers.owners.pool_owners import PoolOwners
from gateway.pools.engines.engine_state import health_state
from gateway.pools.engines.live_engine import LiveEngine
from gateway.pools.events.event_ledger import Trust
from gateway.pools.pool.live_pool import LivePool
from gateway.reports.event_counters import EventCounters
from gateway.reports.hotspot import HotspotDetector
from gateway.reports.queue_counters import QueueCounters
from kvstore.index.lower_tiers import TIERS
from routing.chain.ownership import ASKS, ONLY
from routing.cost.cost_model import PrefillCost
from routing.ledger.fleet_view import EngineLoad
from routing.values.load_cv import LoadSmoother, load_cv

EMPTY_S = 2.0
"""Interval of samples without pools, below the age at which a gateway counts as silent."""
REFERENCE_PROMPT_TOKENS = 4096
"""Prompt length for which a pool's prefill speed is stated."""


class _Shown(msgspec.Struct, frozen=True):
    state: str
    reason: str
    since: float


class FleetSampler:
    """Creates FleetSamples. Mutable: sequence number, hotspots, smoothed loads, each engine's last displayed state."""

    def __init__(
        self,
        bus: Bus,
        pools: Callable[[], Collection[LivePool]],
        snapshot_version: Callable[[], int],
        metrics: GatewayMetrics,
        settings: GatewaySettings,
        lag: LoopLag,
        owners: PoolOwners | None = None,
        regions: Callable[[], tuple[RegionSample, ...]] = tuple,
    ) -> None:
        self._bus = bus
        self._pools = pools
        self._snapshot_version = snapshot_version
        self._metrics = metrics
        self._settings = settings
        self._lag = lag
        self._owners = owners
        self._regions = regions
        self._seq = 0
        self._empty_s = float("-inf")
        """When the last sample without pools was published, in monotonic seconds."""
        self._hotspots = HotspotDetector()
        self._smoother = LoadSmoother()
        self._shown: dict[str, _Shown] = {}
        self._event_counters = EventCounters(metrics)
        self._queue_counters = QueueCounters(metrics)
        self._pool_ids: set[str] = set()

    def publish(self) -> None:
        """Publish a sample on the bus, and set the gauges. Without pools, the next ones are left out for EMPTY_S."""
        now = time.monotonic()
        if now - self._empty_s < EMPTY_S and not self._pools():
            return
        sample = self.sample(now, time.time())
        self._empty_s = float("-inf") if sample.pools else now
        self._bus.publish(TOPIC, encode_sample(sample))
        self._set_gauges(sample)

    def sample(self, now: float, unix: float) -> FleetSample:
        """Return a consistent sample of all pools. `now` is monotonic, `unix` wall-clock seconds."""
        self._seq += 1
        engines: list[EngineSample] = []
        pools: list[PoolSample] = []
        for pool in sorted(self._pools(), key=lambda item: (item.entry.name, item.entry.pool_id)):
            roles = self._roles(pool, unix)
            asks = any(role.role == ASKS for role in roles)
            loads = {load.engine_id: _bound_only(load) if asks else load for load in pool.router.loads(now)}
            engine_samples, cv = self._engines(pool, loads, now, unix)
            engines += engine_samples
            queued_s = sum(engine_sample.in_flight_s for engine_sample in engine_samples)
            bound = sum(engine_sample.bound for engine_sample in engine_samples)
            pools.append(msgspec.structs.replace(self._pool(pool, cv, bound, queued_s, now), roles=roles))
        return FleetSample(
            seq=self._seq,
            at=unix,
            window_s=self._settings.window_s,
            snapshot_version=self._snapshot_version(),
            engines=tuple(engines),
            pools=tuple(pools),
            lateness=self._lateness(now, unix),
            regions=self._regions(),
        )

    def _roles(self, pool: LivePool, unix: float) -> tuple[PoolRole, ...]:
        shared = self._owners.shared.get(pool.entry.pool_id) if self._owners is not None else None
        if self._owners is None or shared is None:
            return ()
        known, settings = shared.ownership, self._settings.peers
        if known.role == ONLY and not known.seen.number and not known.reason:
            return ()
        return (
            PoolRole(
                gateway=settings.name if settings is not None else "",
                role=known.role,
                owner=self._owners.name_of(known.owner) if known.owner else "",
                epoch=known.seen.number,
                since=unix - (self._owners.clock() - known.since_s),
                reason=known.reason,
            ),
        )

    def _lateness(self, now: float, unix: float) -> Lateness | None:
        lag = self._lag
        if not lag.late:
            return None
        return Lateness(
            since=unix - (now - lag.since_s),
            lapses=lag.lapses,
            away_s=lag.away_s,
            rejects=lag.retry_after_s(now) is not None,
        )

    def _engines(
        self, pool: LivePool, loads: dict[str, EngineLoad], now: float, unix: float
    ) -> tuple[list[EngineSample], float]:
        live = sorted(pool.engines.values(), key=lambda item: (item.entry.name, item.entry.engine_id))
        serving = {
            item.entry.engine_id: loads[item.entry.engine_id].in_flight_s
            for item in live
            if pool.accepts(item.entry.engine_id) and item.entry.engine_id in loads
        }
        median_s = statistics.median(serving.values()) if serving else 0.0
        oldest = pool.router.oldest_waits(now)
        samples = []
        for engine in live:
            load = loads.get(engine.entry.engine_id) or EngineLoad(engine.entry.engine_id, 0, 0.0, 0, 0)
            shown = self._state(pool, engine, load, median_s, now, unix)
            oldest_s = oldest.get(engine.entry.engine_id, 0.0)
            samples.append(_engine_sample(pool, engine, load, shown, oldest_s, now))
            if engine.intake is not None:
                self._event_counters.take(engine.entry.engine_id, engine.intake.ledger.counts)
        pending = {engine_id: float(loads[engine_id].in_flight_tokens) for engine_id in serving}
        return samples, load_cv(self._smoother.update(pending, now))

    def _state(
        self, pool: LivePool, engine: LiveEngine, load: EngineLoad, median_s: float, now: float, unix: float
    ) -> _Shown:
        """Return state, reason and since when. `since` changes only with the state."""
        engine_id = engine.entry.engine_id
        accepts = pool.accepts(engine_id)
        if accepts:
            slo_s = pool.entry.policy.ttft_slo_s
            hot = self._hotspots.update(engine_id, load.in_flight_s, median_s, slo_s, now)
        else:
            hot = False
            self._hotspots.forget(engine_id)
            self._smoother.forget(engine_id)
        state, reason = health_state(engine, now, accepts=accepts)
        if state == "serving" and hot:
            state = "hot"
            reason = f"{load.in_flight_s:.1f} s of in-flight work, the pool's median is {median_s:.1f} s"
        before = self._shown.get(engine_id)
        since = before.since if before is not None and before.state == state else unix
        self._shown[engine_id] = _Shown(state, reason, since)
        return self._shown[engine_id]

    def _pool(self, pool: LivePool, cv: float, bound: int, queued_s: float, now: float) -> PoolSample:
        entry = pool.entry
        unbound, unbound_tokens, oldest_wait_s = pool.router.unbound(now)
        traffic = pool.traffic.summary(now)
        policy = pool.router.policy
        counts = pool.router.counts
        self._queue_counters.take(entry.pool_id, counts)
        queue = pool.queue.evaluate(counts, now)
        reference_s = PrefillCost.of(policy.prefill_cost).seconds(REFERENCE_PROMPT_TOKENS, 0)
        tokens_per_s = REFERENCE_PROMPT_TOKENS / reference_s
        return PoolSample(
            pool_id=entry.pool_id,
            name=entry.name,
            region=entry.region,
            served_model=entry.served_model,
            placement=policy.placement.name,
            order=policy.order.name,
            policy_version=pool.router.policy_version,
            ttft_slo_s=policy.ttft_slo_s,
            tokens_per_s=tokens_per_s,
            # A deferred request waits at the gateway, too, and is bound to no engine.
            unbound=unbound + len(pool.router.deferred),
            unbound_tokens=unbound_tokens,
            oldest_wait_s=oldest_wait_s,
            load_cv=cv,
            requests_per_s=traffic.requests_per_s,
            prompt_tokens_per_s=traffic.prompt_tokens_per_s,
            ttft_p50_s=traffic.ttft_p50_s,
            ttft_p90_s=traffic.ttft_p90_s,
            ttft_p99_s=traffic.ttft_p99_s,
            on_time_share=traffic.on_time_share,
            hit_share=traffic.hit_share,
            approximate_share=traffic.approximate_share,
            late=traffic.late,
            failed=traffic.failed,
            rejected=traffic.rejected,
            outcomes=pool.outcomes.outcomes(),
            judged=traffic.judged,
            ttft_count=traffic.ttft_count,
            ttft_points=traffic.ttft_points,
            observes=pool.observes,
            admission=policy.admission.mode,
            bound=bound,
            dispatched_at_once_per_s=queue.dispatched_at_once_per_s if queue else None,
            dispatched_waited_per_s=queue.dispatched_waited_per_s if queue else None,
            queue_wait_mean_s=queue.wait_mean_s if queue else None,
            queue_wait_p90_s=queue.wait_p90_s if queue else None,
            migrations_per_s=queue.migrations_per_s if queue else None,
            overtaken_per_s=queue.overtaken_per_s if queue else None,
            rejections_per_s=queue.rejections_per_s if queue else None,
            totals=_totals(pool),
            prefixes=pool.progress.prefixes.top(now) if pool.sticky_placement is not None else (),
            usual_d=pool.sticky_placement.d if pool.sticky_placement is not None else 0,
            queued_s=queued_s + unbound_tokens / tokens_per_s,
        )

    def _set_gauges(self, sample: FleetSample) -> None:
        metrics = self._metrics
        for engine in sample.engines:
            metrics.in_flight_tokens.set(engine.engine_id, value=engine.in_flight_tokens)
            metrics.index_trust.set(engine.engine_id, value=Trust(engine.index_trust, "").weight)
            for tier in engine.tiers:
                metrics.tier_blocks.set(engine.engine_id, tier.tier, value=tier.blocks)
                metrics.load_seconds.set(engine.engine_id, tier.tier, value=tier.token_s or 0.0)
            if engine.adapter_s is not None:
                metrics.load_seconds.set(engine.engine_id, "adapter", value=engine.adapter_s)
            for state in STATES:
                metrics.engine_state.set(engine.engine_id, state, value=1.0 if state == engine.state else 0.0)
        for pool in sample.pools:
            if any(role.role == ASKS for role in pool.roles):
                self._leave_to_owner(pool, sample)
                continue
            metrics.queued_requests.set(pool.pool_id, value=pool.unbound + (pool.bound or 0))
            metrics.load_cv.set(pool.pool_id, value=pool.load_cv)
        for live in self._pools():
            for engine_id, member in live.engines.items():
                if member.key_rejected:
                    metrics.rejected_keys.set(engine_id, value=1.0)
                else:
                    metrics.rejected_keys.remove(engine_id)
            metrics.index_bytes.set(live.entry.pool_id, value=live.router.index.bytes_used)
        metrics.gateway_late.set(sample.lateness is not None)
        metrics.snapshot_version.set(sample.snapshot_version)
        self._forget_gone({engine.engine_id for engine in sample.engines}, {pool.pool_id for pool in sample.pools})

    def _leave_to_owner(self, pool: PoolSample, sample: FleetSample) -> None:
        """Remove the gauges that the pool's owner exports for all gateways."""
        self._metrics.queued_requests.remove(pool.pool_id)
        self._metrics.load_cv.remove(pool.pool_id)
        for engine in sample.engines:
            if engine.pool_id == pool.pool_id:
                self._metrics.in_flight_tokens.remove(engine.engine_id)

    def _forget_gone(self, engine_ids: set[str], pool_ids: set[str]) -> None:
        metrics = self._metrics
        for engine_id in self._shown.keys() - engine_ids:
            del self._shown[engine_id]
            self._hotspots.forget(engine_id)
            self._smoother.forget(engine_id)
            self._event_counters.forget(engine_id)
            metrics.in_flight_tokens.remove(engine_id)
            metrics.index_trust.remove(engine_id)
            metrics.rejected_keys.remove(engine_id)
            for tier in (*TIERS, "adapter"):
                metrics.tier_blocks.remove(engine_id, tier)
                metrics.load_seconds.remove(engine_id, tier)
            for state in STATES:
                metrics.engine_state.remove(engine_id, state)
        for pool_id in self._pool_ids - pool_ids:
            self._queue_counters.forget(pool_id)
            for family in (metrics.queued_requests, metrics.load_cv, metrics.index_bytes, metrics.owner_epoch):
                family.remove(pool_id)
        self._pool_ids = pool_ids


def _bound_only(load: EngineLoad) -> EngineLoad:
    """Return an engine's load without the running requests, which the pool's owner counts."""
    return msgspec.structs.replace(load, in_flight_tokens=0, in_flight_s=0.0, running=0)


def _engine_sample(
    pool: LivePool, engine: LiveEngine, load: EngineLoad, shown: _Shown, oldest_bound_s: float, now: float
) -> EngineSample:
    entry = engine.entry
    prompt, cached = pool.traffic.totals(entry.engine_id)
    dispatched, hits = pool.progress.dispatched_tokens(entry.engine_id)
    trust = engine.index_trust(by_dispatches=pool.fed_by_dispatches(engine))
    return EngineSample(
        engine_id=entry.engine_id,
        name=entry.name,
        pool_id=entry.pool_id,
        incarnation=engine.incarnation,
        state=shown.state,
        reason=shown.reason,
        since=shown.since,
        in_flight_tokens=load.in_flight_tokens,
        in_flight_s=load.in_flight_s,
        running=load.running,
        bound=load.bound,
        oldest_bound_s=oldest_bound_s,
        kv_usage=engine.report.kv_usage if engine.report is not None else None,
        prompt_tokens_total=prompt,
        cached_tokens_total=cached,
        predicted_tokens_total=pool.traffic.predicted(entry.engine_id),
        dispatched_tokens_total=dispatched,
        dispatched_hits_total=hits,
        index_trust=trust.grade,
        index_trust_reason=trust.reason,
        block_tokens=engine.report.block_size if engine.report is not None else None,
        tiers=_tiers(pool, engine),
        adapter_s=pool.router.fleet.loading_costs.learned_adapter_s(entry.engine_id),
        report_age_s=None if engine.answered_at is None else now - engine.answered_at,
        role=entry.role,
        answered=engine.breaker.answered,
        counts=pool.progress.engine(entry.engine_id).counts(now, _event_gaps(engine)),
        faults=replace(pool.progress.faults(entry.engine_id), evictions=_evictions(engine)),
    )


def _tiers(pool: LivePool, engine: LiveEngine) -> tuple[TierSample, ...]:
    engine_id, costs = engine.entry.engine_id, pool.router.fleet.loading_costs
    blocks = engine.intake.ledger.tiers.counts if engine.intake is not None else {}
    return tuple(TierSample(item, blocks[item], costs.token_s(engine_id, item)) for item in TIERS if item in blocks)


def _event_gaps(engine: LiveEngine) -> int:
    return engine.intake.ledger.counts.get("gaps", 0) if engine.intake is not None else 0


def _evictions(engine: LiveEngine) -> int | None:
    return None if engine.intake is None else engine.intake.ledger.counts.get("evicted", 0)


def _totals(pool: LivePool) -> PoolTotals:
    traffic, progress = pool.traffic, pool.progress
    return PoolTotals(
        requests=traffic.requests,
        on_time=traffic.on_time,
        rejected=traffic.rejected,
        work_s=progress.work_s,
        prompt_tokens=progress.prompt_tokens,
        recomputed_tokens=progress.recomputed_tokens,
    )
