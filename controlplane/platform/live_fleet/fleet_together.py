"""Merges the samples of several gateways into one view of the fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import add, attrgetter, sub

import msgspec

from controlplane.platform.live_fleet.engines_together import engine_together
from controlplane.platform.live_fleet.pools_together import pool_together
from gateway.contracts.fleet_sample import TAKING_WORK, EngineSample, FleetSample, PoolSample
from gateway.contracts.outcomes import PoolOutcomes
from routing.values.load_cv import LoadSmoother, load_cv

_COUNTERS = (
    "prompt_tokens_total",
    "cached_tokens_total",
    "predicted_tokens_total",
    "dispatched_tokens_total",
    "dispatched_hits_total",
)
_Tokens = tuple[int, ...]
"""An engine's counters, in the order of _COUNTERS."""
_NONE = (0,) * len(_COUNTERS)
_tokens: Callable[[EngineSample], _Tokens] = attrgetter(*_COUNTERS)


class FleetTogether:
    """Merges the samples of many gateways. Mutable state: the counters, the smoothed loads, the sequence number.

    A gateway's counters restart with the gateway, and gateways join and leave. The merged token counters of an engine
    and outcomes of a pool only increase.
    """

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], _Tokens] = {}
        self._totals: dict[str, _Tokens] = {}
        self._outcomes = _OutcomesTogether()
        self._smoother = LoadSmoother()
        self._seq = 0

    def sample(self, by_gateway: Mapping[str, FleetSample]) -> FleetSample | None:
        """Merge the gateways' samples, by name; None without gateways."""
        if not by_gateway:
            return None
        self._count(by_gateway)
        self._outcomes.count(by_gateway)
        newest = max(by_gateway.values(), key=lambda item: item.at)
        if len(by_gateway) == 1:
            return msgspec.structs.replace(
                newest,
                engines=tuple([self._counted(engine) for engine in newest.engines]),
                pools=tuple([self._outcomes.shown(pool) for pool in newest.pools]),
            )
        self._seq += 1
        engines = self._engines(by_gateway)
        lateness = [item.lateness for item in by_gateway.values() if item.lateness is not None]
        return FleetSample(
            seq=self._seq,
            at=newest.at,
            window_s=newest.window_s,
            # The oldest: a change is in effect only where every gateway serves it.
            snapshot_version=min(item.snapshot_version for item in by_gateway.values()),
            engines=engines,
            pools=self._pools(by_gateway, engines, newest.at),
            lateness=max(lateness, key=lambda item: item.away_s) if lateness else None,
            regions=tuple(region for item in by_gateway.values() for region in item.regions),
        )

    def _engines(self, by_gateway: Mapping[str, FleetSample]) -> tuple[EngineSample, ...]:
        seen: dict[str, dict[str, EngineSample]] = {}
        for name, sample in by_gateway.items():
            for engine in sample.engines:
                seen.setdefault(engine.engine_id, {})[name] = engine
        pools = {pool.pool_id: pool.name for sample in by_gateway.values() for pool in sample.pools}
        engines = [self._counted(engine_together(item)) for item in seen.values()]
        return tuple(sorted(engines, key=lambda item: (pools.get(item.pool_id, ""), item.pool_id, item.name)))

    def _pools(
        self, by_gateway: Mapping[str, FleetSample], engines: tuple[EngineSample, ...], at: float
    ) -> tuple[PoolSample, ...]:
        seen: dict[str, list[PoolSample]] = {}
        for sample in by_gateway.values():
            for pool in sample.pools:
                seen.setdefault(pool.pool_id, []).append(pool)
        pending: dict[str, dict[str, float]] = {}
        for engine in engines:
            if engine.state in TAKING_WORK:
                pending.setdefault(engine.pool_id, {})[engine.engine_id] = float(engine.in_flight_tokens)
            else:
                self._smoother.forget(engine.engine_id)
        pools = [
            pool_together(pool_samples, load_cv(self._smoother.update(pending.get(pool_id, {}), at)))
            for pool_id, pool_samples in seen.items()
        ]
        return tuple([self._outcomes.shown(pool) for pool in sorted(pools, key=lambda item: (item.name, item.pool_id))])

    def _count(self, by_gateway: Mapping[str, FleetSample]) -> None:
        counted = {
            (name, engine.engine_id): _tokens(engine)
            for name, sample in by_gateway.items()
            for engine in sample.engines
        }
        for key, now in counted.items():
            # A gateway's first sample, and the first after its restart, is its baseline; the counters of a gateway
            # that was always alone stay as it reports them.
            before = self._counters.get(key) or (now if key[1] in self._totals else _NONE)
            added = tuple(map(sub, now, before))
            # A negative difference means that the gateway restarted.
            if min(added) >= 0:
                total = self._totals.get(key[1], _NONE)
                self._totals[key[1]] = tuple(map(add, total, added))
        self._counters = counted
        engine_ids = {engine_id for _, engine_id in counted}
        self._totals = {engine_id: tokens for engine_id, tokens in self._totals.items() if engine_id in engine_ids}

    def _counted(self, engine: EngineSample) -> EngineSample:
        totals = self._totals[engine.engine_id]
        if totals == _tokens(engine):
            return engine
        return msgspec.structs.replace(engine, **dict(zip(_COUNTERS, totals, strict=True)))


class _OutcomesTogether:
    """The merged outcomes of each pool. Mutable: the sums, and each gateway's last counts.

    A gateway's first counts for a pool with other gateways are its baseline: the requests before them are not added. A
    silent gateway's counts are kept, so that its requests meanwhile are added when it reports again.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], PoolOutcomes] = {}
        self._sums: dict[str, PoolOutcomes] = {}

    def count(self, by_gateway: Mapping[str, FleetSample]) -> None:
        pools = [(name, pool.pool_id, pool.outcomes) for name, sample in by_gateway.items() for pool in sample.pools]
        for name, pool_id, now in pools:
            known, before = self._sums.get(pool_id), self._seen.get((name, pool_id))
            if now is not None and (known is None or before is not None):
                self._sums[pool_id] = now if known is None else known.plus(now.since(before))
            if now is not None:
                self._seen[name, pool_id] = now
        pool_ids = {pool_id for _, pool_id, _ in pools}
        self._sums = {pool_id: sums for pool_id, sums in self._sums.items() if pool_id in pool_ids}
        self._seen = {key: seen for key, seen in self._seen.items() if key[1] in pool_ids}

    def shown(self, pool: PoolSample) -> PoolSample:
        return msgspec.structs.replace(pool, outcomes=self._sums.get(pool.pool_id))
