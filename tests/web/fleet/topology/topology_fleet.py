"""A stored topology and the sample that a gateway would publish for it, for tests of the Engines page."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.policies.models.policy import Policy
from gateway.contracts.fleet_sample import EngineSample, FleetSample, PoolSample


def make_pool(slug: str = "chat", region: str = "eu-west", **fields: Any) -> Pool:
    """Store a pool with its region and policy."""
    stored, _ = Region.objects.get_or_create(slug=region, defaults={"name": region.upper()})
    policy, _ = Policy.objects.get_or_create(slug="default", defaults={"name": "Default"})
    defaults = {"name": f"{slug}-pool", "served_model": "m-8b", "region": stored, "policy": policy}
    return Pool.objects.create(slug=slug, **(defaults | fields))


def make_engines(pool: Pool, count: int, start: int = 1) -> list[Engine]:
    """Store many engines at once, without the checks of registration."""
    return Engine.objects.bulk_create(
        Engine(
            engine_id=f"{pool.slug}-{number}",
            pool=pool,
            name=f"e-{number:04d}",
            url=f"http://10.{pool.pk % 250}.{number // 250}.{number % 250}:8000",
            connect_url=f"http://10.{pool.pk % 250}.{number // 250}.{number % 250}:8000",
        )
        for number in range(start, start + count)
    )


def sample_of(engines: Iterable[Engine], **changes: Mapping[str, Any]) -> FleetSample:
    """Return a current sample in which all engines serve. `changes` sets fields by engine name (e_0001=…)."""
    now = time.time()
    seen = []
    pools: dict[str, Pool] = {}
    for engine in engines:
        pools[engine.pool.slug] = engine.pool
        values: dict[str, Any] = {
            "engine_id": engine.engine_id,
            "name": engine.name,
            "pool_id": engine.pool.slug,
            "incarnation": 1,
            "state": "serving",
            "reason": "",
            "since": now - 300,
            "in_flight_tokens": 12_000,
            "in_flight_s": 1.0,
            "running": 3,
            "bound": 1,
            "kv_usage": 0.5,
            "prompt_tokens_total": 1000,
            "cached_tokens_total": 714,
            "index_trust": "exact",
            "report_age_s": 0.06,
        }
        seen.append(EngineSample(**(values | changes.get(engine.name.replace("-", "_"), {}))))
    return FleetSample(
        seq=1,
        at=now,
        window_s=60.0,
        snapshot_version=12,
        engines=tuple(seen),
        pools=tuple(_pool(pool) for pool in pools.values()),
    )


def encoded(sample: FleetSample) -> bytes:
    """Return the sample as it is encoded on the bus."""
    return msgspec.msgpack.encode(sample)


def _pool(pool: Pool) -> PoolSample:
    figures = {
        field.name: 0 if field.type is int else 0.0
        for field in msgspec.structs.fields(PoolSample)
        if field.type in (float, int) or field.type == (float | None)
    }
    names = {"pool_id": pool.slug, "name": pool.name, "region": pool.region.slug, "served_model": pool.served_model}
    rest = {"policy_version": 7, "placement": "least_cost", "order": "late_last", "ttft_slo_s": 2.0}
    return PoolSample(**(figures | names | rest))
