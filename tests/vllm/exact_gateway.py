"""A gateway that follows the KV events of real engines in one pool."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from tests.gateway.served_gateway import ServedGateway, served, snapshot
from tests.patience import until
from tests.vllm.real_engine import BLOCK_TOKENS, RealEngine


@asynccontextmanager
async def exact_gateway(engines: Sequence[RealEngine], state_dir: Path, **pool: Any) -> AsyncIterator[ServedGateway]:
    """Serve the engines once the gateway has all their events; `pool` overrides fields of its snapshot entry."""
    plain = snapshot([item.url for item in engines], block_tokens=BLOCK_TOKENS, **pool)
    entries = tuple(
        msgspec.structs.replace(entry, kv_events_endpoint=engine.events, kv_replay_endpoint=engine.replay)
        for entry, engine in zip(plain.engines, engines, strict=True)
    )
    bus = InProcessBus()
    bus.publish(SNAPSHOT_TOPIC, encode_snapshot(msgspec.structs.replace(plain, engines=entries)))
    async with served([], state_dir, bus=bus) as running:
        await until(lambda: all(item.trust.grade == "exact" for item in running.pool.engines.values()))
        yield running
