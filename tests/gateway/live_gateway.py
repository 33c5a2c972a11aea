"""A Gateway without an app in front, over engines and snapshots of the test."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.base.settings import BreakerSettings, EngineLimits, EventSettings, GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.contracts.engine_report import EngineReport, encode_report, load_topic
from gateway.contracts.fleet_sample import EngineSample, FleetSample, decode_sample
from gateway.contracts.snapshot import EngineEntry, PoolEntry, Snapshot, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC, Gateway
from gateway.pools.engines.live_engine import LiveEngine
from gateway.pools.pool.live_pool import LivePool
from kvstore.keys.keyring import Keyring
from routing.values.inference_request import InferenceRequest

KEYRING = Keyring.of(b"a fleet secret that is for tests only")
SETTINGS = GatewaySettings(
    sample_interval_s=0.05,
    probe_interval_s=0.05,
    limits=EngineLimits(probe_timeout_s=0.5),
    report_stale_s=0.4,
    breaker=BreakerSettings(trial_s=0.1, outlier_hold_s=0.3),
    events=EventSettings(replay_timeout_s=0.3, verify_after_s=0.3, retry_min_s=0.02, retry_max_s=0.1, rebuild_blocks=4),
)


class LiveGateway:
    """A started gateway and the bus that feeds it."""

    def __init__(self, gateway: Gateway, bus: InProcessBus) -> None:
        self.gateway = gateway
        self.bus = bus

    @property
    def pool(self) -> LivePool:
        """Return the pool named "pool"."""
        return self.gateway.pools["pool"]

    def engine(self, engine_id: str) -> LiveEngine:
        """Return an engine of that pool."""
        return self.pool.engines[engine_id]

    def publish(self, snapshot: Snapshot) -> None:
        """Publish a snapshot on the bus."""
        self.bus.publish(SNAPSHOT_TOPIC, encode_snapshot(snapshot))

    def report(self, engine_id: str, **fields: Any) -> None:
        """Publish an engine report on the bus; healthy unless the fields state otherwise."""
        known = {"engine_id": engine_id, "at": time.time(), "reachable": True, "healthy": True, "reason": ""}
        self.bus.publish(load_topic(engine_id), encode_report(EngineReport(**{**known, **fields})))

    def sample(self) -> FleetSample:
        """Return the last published sample."""
        value = self.bus.latest("fleet")
        assert value is not None
        return decode_sample(value)

    def shown(self, engine_id: str) -> EngineSample:
        """Return one engine of the last sample."""
        return next(engine for engine in self.sample().engines if engine.engine_id == engine_id)


def pool_entry(**fields: Any) -> PoolEntry:
    """Return a pool whose blocks have two tokens."""
    known: dict[str, Any] = {"pool_id": "pool", "name": "pool", "region": "here", "served_model": "m"}
    return PoolEntry(**{**known, "block_tokens": 2, **fields})


def engine_entry(engine_id: str, url: str, **fields: Any) -> EngineEntry:
    """Return an engine of that pool."""
    return EngineEntry(**{"engine_id": engine_id, "name": engine_id, "pool_id": "pool", "url": url, **fields})


def snapshot(engines: Sequence[EngineEntry], *, version: int = 1, **pool: Any) -> Snapshot:
    """Return a snapshot of one pool."""
    return Snapshot(version=version, published_at=float(version), pools=(pool_entry(**pool),), engines=tuple(engines))


def request(
    name: str, keys: tuple[int, ...] = (), prompt_tokens: int = 100, ttft_slo_s: float = 5.0
) -> InferenceRequest:
    """Return a request with the current arrival time."""
    return InferenceRequest(name, keys, prompt_tokens, 2, time.monotonic(), ttft_slo_s)


@asynccontextmanager
async def live_gateway(
    state_dir: Path,
    first: Snapshot | None = None,
    settings: GatewaySettings = SETTINGS,
    bus: InProcessBus | None = None,
) -> AsyncIterator[LiveGateway]:
    """Start a gateway on its own bus, with `first` published before."""
    bus = bus or InProcessBus()
    if first is not None:
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(first))
    gateway = Gateway(bus, keyring=KEYRING, state_dir=state_dir, settings=settings)
    await gateway.start()
    try:
        yield LiveGateway(gateway, bus)
    finally:
        await gateway.stop()
