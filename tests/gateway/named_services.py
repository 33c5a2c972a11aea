"""A gateway with a service `chat` over two pools of different models and a provider, each a scripted engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import ProviderEntry, ServiceEntry, Snapshot, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from routing.policy.policy_document import RoutingPolicy
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import ServedGateway, served, snapshot

NAME, ALIAS = "chat", "gpt-4o-mini"
LARGE, SMALL = "large-model", "small-model"
KEY_VARIABLE, PROVIDERS_KEY = "HEADWAY_PROVIDER_KEY_TEST", "sk-of-the-provider"
HASTY = RoutingPolicy(max_wait_s=0.1)
"""Requests wait only briefly for an engine where there is none."""
ASKED: dict[str, Any] = {"model": ALIAS, "messages": [{"role": "user", "content": "x" * 40}]}


def provider_of(server: ScriptedEngine, **fields: Any) -> ProviderEntry:
    """Return a provider with prices that make the scripted usage cost 2e-4 + 1.2e-5 dollars."""
    known = {"model": "external-1", "key_variable": KEY_VARIABLE, "input_cost": 2.0, "output_cost": 6.0}
    return ProviderEntry(url=f"{server.url}/v1", **{**known, **fields})


def named(
    engines: Sequence[ScriptedEngine], provider: ProviderEntry | None, pools: Sequence[str] = ("large", "small")
) -> Snapshot:
    """Return a snapshot with one engine in each pool."""
    made = snapshot([engine.url for engine in engines])
    models = {"large": LARGE, "small": SMALL}
    entries = tuple(
        replace(
            made.pools[0], pool_id=name, name=name, served_model=models[name], key_source="approximate", policy=HASTY
        )
        for name in models
    )
    placed = tuple(replace(entry, pool_id=name) for entry, name in zip(made.engines, models, strict=False))
    service = ServiceEntry(name=NAME, aliases=(ALIAS,), pools=tuple(pools), provider=provider)
    return replace(made, pools=entries, engines=placed, services=(service,))


@asynccontextmanager
async def serving(shot: Snapshot, state_dir: Path, **settings: Any) -> AsyncIterator[ServedGateway]:
    """Serve this snapshot during the block."""
    bus = InProcessBus()
    bus.publish(SNAPSHOT_TOPIC, encode_snapshot(shot))
    async with served([], state_dir, bus=bus, **settings) as running:
        yield running


async def explained(gateway: ServedGateway, headers: dict[str, str]) -> Any:
    """Return the explanation of an answer."""
    _, explanation = await gateway.get(f"/api/v1/explain/{headers['x-headway-decision']}")
    return explanation
