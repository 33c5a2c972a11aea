"""Samples cache locality every few seconds and publishes it: rings, shared prefixes, TTFT, hits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from gateway.bus.bus import Bus
from gateway.contracts.cache_locality_sample import (
    TOPIC,
    CacheLocalitySample,
    EngineCacheLocality,
    HitPoint,
    PoolCacheLocality,
    SharedPrefix,
    encode_cache_locality,
)
from gateway.pools.engines.live_engine import LiveEngine
from gateway.pools.pool.live_pool import LivePool
from gateway.pools.traffic.prefix_icicle import IciclePrefix, icicle
from gateway.pools.traffic.prefix_window import SeenPrompt
from routing.rings.ring_plan import OnRings

MAX_KEYS = 256
MAX_POINTS = 512
"""Limit of compared requests per pool that are sent over the bus."""
LEAST_SHARE = 0.003
"""A prefix below this share of the requests is not displayed."""

_Trust = tuple[str, str, float | None]


class CacheLocalitySampler:
    """Creates CacheLocalitySamples. Mutable: the time of each engine's last change of trust."""

    def __init__(self, bus: Bus, pools: Callable[[], Iterable[LivePool]]) -> None:
        self._bus = bus
        self._pools = pools
        self._trust: dict[str, _Trust] = {}

    async def publish(self) -> None:
        """Publish a sample on the bus."""
        self._bus.publish(TOPIC, encode_cache_locality(await self.sample(time.monotonic(), time.time())))

    async def sample(self, now: float, unix: float) -> CacheLocalitySample:
        """Return a sample of all pools. `now` is monotonic, `unix` wall-clock seconds."""
        # A copy, because a snapshot may change the pools during an await.
        pools = [await self._pool(pool, now, unix) for pool in list(self._pools())]
        seen = {engine.engine_id for pool in pools for engine in pool.engines}
        self._trust = {engine_id: trust for engine_id, trust in self._trust.items() if engine_id in seen}
        return CacheLocalitySample(at=unix, pools=tuple(pools))

    async def _pool(self, pool: LivePool, now: float, unix: float) -> PoolCacheLocality:
        prompts = pool.prefixes.recent(now)
        requests = sum(prompt.weight for prompt in prompts)
        least = max(2, round(requests * LEAST_SHARE))
        # Counting takes milliseconds, and requests need not wait for it.
        tree = await asyncio.to_thread(icicle, [(prompt.keys, prompt.weight) for prompt in prompts], least=least)
        view, placement = pool.router.view, pool.router.migration.placement
        on_rings = placement if isinstance(placement, OnRings) else None
        dispatched = Counter[str]()
        for prompt in prompts:
            dispatched[prompt.engine_id] += prompt.weight
        engines = sorted(pool.engines.values(), key=lambda engine: (engine.entry.name, engine.entry.engine_id))
        pool.ttft_split.keep_only(pool.engines)
        points = max(4, MAX_POINTS // max(1, len(engines)))
        return PoolCacheLocality(
            pool_id=pool.entry.pool_id,
            placement=pool.router.policy.placement.name,
            policy_version=pool.router.policy_version,
            block_tokens=pool.entry.block_tokens,
            requests=requests,
            sampled=len(prompts),
            span_s=now - prompts[0].at_s if prompts else 0.0,
            engines=tuple(
                self._engine(pool, engine, dispatched[engine.entry.engine_id], points, now, unix) for engine in engines
            ),
            accepting=tuple(view.roster.engine_ids[target] for target in view.roster.accepting),
            rings=on_rings.ring_plan() if on_rings is not None else None,
            keys=_keys(on_rings, prompts) if on_rings is not None else {},
            widened=len(view.roster.widened),
            prefixes=tuple(_prefix(pool, item, on_rings) for item in tree),
        )

    def _engine(
        self, pool: LivePool, engine: LiveEngine, dispatched: int, points: int, now: float, unix: float
    ) -> EngineCacheLocality:
        engine_id = engine.entry.engine_id
        trust, verdict, samples = (
            engine.index_trust(by_dispatches=pool.fed_by_dispatches(engine)),
            engine.hits.verdict,
            engine.hits.recent(),
        )
        return EngineCacheLocality(
            engine_id=engine_id,
            name=engine.entry.name,
            accepts=pool.accepts(engine_id),
            requests=dispatched,
            split=pool.ttft_split.spans(engine_id, now),
            trust=trust.grade,
            trust_reason=trust.reason,
            trust_since=self._since(engine_id, trust.grade, verdict.cause, unix),
            cause=verdict.cause,
            share=verdict.share,
            compared=len(samples),
            differing=sum(sample.short or sample.missed for sample in samples),
            believed_tokens=sum(sample.believed_tokens for sample in samples),
            reported_tokens=sum(sample.reported_tokens for sample in samples),
            points=tuple(
                HitPoint(
                    sample.prompt_tokens,
                    sample.believed_tokens,
                    sample.reported_tokens,
                    max(0.0, now - sample.at_s),
                    sample.short or sample.missed,
                )
                for sample in samples[-points:]
            ),
        )

    def _since(self, engine_id: str, grade: str, cause: str, unix: float) -> float | None:
        before = self._trust.get(engine_id)
        if before is None:
            self._trust[engine_id] = grade, cause, None
        elif before[:2] != (grade, cause):
            self._trust[engine_id] = grade, cause, unix
        return self._trust[engine_id][2]


def _keys(placement: OnRings, prompts: Sequence[SeenPrompt]) -> dict[str, int]:
    counts = Counter[int]()
    for prompt in prompts:
        counts[prompt.keys[placement.key_length(prompt.keys) - 1]] += prompt.weight
    return {f"{key:016x}": count for key, count in counts.most_common(MAX_KEYS)}


def _prefix(pool: LivePool, node: IciclePrefix, placement: OnRings | None) -> SharedPrefix:
    bits = pool.router.index.targets_of(node.key, 0)
    holders = {engine_id for target, engine_id in enumerate(pool.router.view.roster.engine_ids) if bits >> target & 1}
    length = placement.key_length(node.prompt) if placement is not None else 0
    dram, ssd = pool.loads.nodes.holdings.where(node.key)
    return SharedPrefix(
        key=f"{node.key:016x}",
        parent=node.parent,
        level=node.level,
        first_block=node.first_block,
        last_block=node.last_block,
        requests=node.requests,
        holders=tuple(sorted(holders & pool.engines.keys())),
        dram_nodes=dram,
        ssd_nodes=ssd,
        key_blocks=length if node.first_block <= length <= node.last_block else 0,
    )
