"""Simulated hybrid-model engines over HTTP and KV events: their hits are predicted, evicted windows included."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.live.loopback_ports import free_ports
from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import EngineEntry, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_server.settings import EngineSettings
from tests.gateway.pools.pool.hybrid_prompts import Asked, HybridPrompts
from tests.gateway.served_gateway import MODEL, ServedGateway, served, snapshot
from tests.patience import until
from tests.simulated_engine import serving

BLOCK, WINDOW = 16, 50
"""Four blocks before the end of a hit: one more token than three hold is needed."""
PROFILE = EngineProfile(block_tokens=BLOCK, num_blocks=200, recompute_last_block=True)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[ServedGateway]:
    """Run one engine with 200 blocks, of which its window has 25."""
    port, events, replay = free_ports(3)
    settings = EngineSettings(
        port=port, served_model=MODEL, sliding_window=WINDOW, seed=b"hybrid", time_scale=1000.0, profile=PROFILE,
        kv_events_port=events, kv_replay_port=replay,
    )  # fmt: skip
    entry = EngineEntry(
        engine_id="engine", name="e", pool_id="pool", url=f"http://127.0.0.1:{port}",
        kv_events_endpoint=f"tcp://127.0.0.1:{events}", kv_replay_endpoint=f"tcp://127.0.0.1:{replay}",
    )  # fmt: skip
    bus = InProcessBus()
    bus.publish(SNAPSHOT_TOPIC, encode_snapshot(replace(snapshot([]), engines=(entry,))))
    async with serving(settings), served([], tmp_path, bus=bus) as running:
        await until(lambda: all(engine.trust.grade == "exact" for engine in running.pool.engines.values()))
        yield running


async def test_a_shared_prefix_is_not_a_hit_until_its_window_is_kept(gateway: ServedGateway) -> None:
    made = HybridPrompts(gateway, 1)
    whole = made.after(made.tokens(8), 6)
    assert await made.ask(whole) == Asked(0, 0, 0)
    assert await made.ask(whole) == Asked(14, 14, 14)
    assert await made.ask(made.after(whole[: 14 * BLOCK], 2)) == Asked(14, 14, 14)
    for blocks in (8, 2):
        assert await made.ask(made.after(whole[: blocks * BLOCK], 3)) == Asked(0, 0, blocks)
        assert await made.ask(made.after(whole[: blocks * BLOCK], 3)) == Asked(blocks, blocks, blocks)


async def test_predicted_hits_stay_exact_while_windows_and_prompts_are_evicted(gateway: ServedGateway) -> None:
    made = HybridPrompts(gateway, 3)
    asked = await made.ask_many(120)
    assert [item.predicted for item in asked] == [item.cached for item in asked]
    assert made.removed > 100
    assert sum(item.cached == item.full > 4 for item in asked) > 10
    assert sum(item.cached == 0 < item.full for item in asked) > 5
    assert sum(0 < item.cached < item.full for item in asked) > 2
