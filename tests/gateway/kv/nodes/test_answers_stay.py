"""Simulated engines, node managers, and a gateway: the next turn finds prompt and answer wherever it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.live.loopback_ports import free_ports
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.contracts.stored_decision import StoredDecision
from gateway.reports.decision_recorder import current_decision
from kvstore.transfer.shared_secret import NodeAccess
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_server.settings import EngineSettings
from tests.gateway.kv.nodes.test_loads_end_to_end import Fleet, a_node
from tests.gateway.requests.advisories.test_advisories_end_to_end import ADVISORIES, policy
from tests.gateway.served_gateway import CHAT, MODEL, served, snapshot
from tests.kvstore.kv_blocks import KEYRING
from tests.patience import until
from tests.simulated_engine import serving

BLOCK, TURN = 16, "details about valve 7 and pump 9 in the second row of the plant, please; " * 6
PROFILE = EngineProfile(
    block_tokens=BLOCK, num_blocks=256, recompute_last_block=True, kv_bytes_per_token=64, prefill_per_token_s=0.1
)


@asynccontextmanager
async def two_engines(state_dir: Path) -> AsyncIterator[Fleet]:
    """Serve two simulated engines with a node each. Computing takes so long that loading pays."""
    bus = InProcessBus()
    async with AsyncExitStack() as stack:
        nodes = [stack.enter_context(a_node(name))[1] for name in ("a", "b")]
        engines = []
        for node in nodes:
            port, events, replay = free_ports(3)
            engines.append(
                EngineSettings(
                    port=port, served_model=MODEL, seed=node.name.encode(), time_scale=100.0, profile=PROFILE,
                    kv_events_port=events, kv_replay_port=replay,
                    kv_node=node.address, kv_keyring=KEYRING, kv_bytes_per_token=64,
                )
            )  # fmt: skip
            await stack.enter_async_context(serving(engines[-1]))
        settings = GatewaySettings(probe_interval_s=0.1, kv_access=NodeAccess(KEYRING))
        gateway = await stack.enter_async_context(served([], state_dir, bus=bus, gateway_settings=settings))
        plain = snapshot([f"http://127.0.0.1:{item.port}" for item in engines], policy=policy("gated"))
        known = tuple(
            msgspec.structs.replace(
                entry,
                kv_node=node.name,
                kv_events_endpoint=f"tcp://127.0.0.1:{item.kv_events_port}",
                kv_replay_endpoint=f"tcp://127.0.0.1:{item.kv_replay_port}",
            )
            for entry, node, item in zip(plain.engines, nodes, engines, strict=True)
        )
        fleet = Fleet(gateway, {}, msgspec.structs.replace(plain, engines=known), bus)
        fleet.publish(kv_nodes=tuple(nodes))
        await until(lambda: "pool" in gateway.gateway.pools and len(gateway.pool.accepting) == 2)
        await until(lambda: fleet.holding("a") and fleet.holding("b"))
        yield fleet


async def chat(fleet: Fleet, turns: list[str]) -> tuple[dict[str, Any], StoredDecision]:
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": turn} for number, turn in enumerate(turns)]
    sent = {"model": MODEL, "messages": messages, "max_tokens": 200, "session_id": "s-1"}
    status, answer, headers = await fleet.gateway.post(CHAT, sent)
    assert status == 200, answer
    record = fleet.gateway.app.recent.get(headers["x-headway-decision"])
    assert record is not None
    return answer, current_decision(record)


async def only(fleet: Fleet, engine_id: str) -> None:
    fleet.keep_out(*({"engine-0", "engine-1"} - {engine_id}))
    await until(lambda: fleet.gateway.pool.accepting == {engine_id})


async def test_the_next_turn_on_another_engine_loads_prompt_and_answer(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as fleet:
        await only(fleet, "engine-0")
        first, _ = await chat(fleet, [TURN])
        held = (first["usage"]["total_tokens"] - 1) // BLOCK
        assert held > first["usage"]["prompt_tokens"] // BLOCK + 10
        await until(lambda: fleet.blocks("a") == held)
        await only(fleet, "engine-1")
        turns = [TURN, first["choices"][0]["message"]["content"], "and pump 10?"]
        second, record = await chat(fleet, turns)
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == held * BLOCK
        assert record.load is not None
        assert (record.load.node, record.load.blocks) == ("a", held)


async def test_an_advisory_moves_the_answer_too(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as fleet:
        await only(fleet, "engine-0")
        first, _ = await chat(fleet, [TURN])
        held = (first["usage"]["total_tokens"] - 1) // BLOCK
        sessions = fleet.gateway.gateway.advisories.sessions
        await until(lambda: len(getattr(sessions.get("tenant-a", "s-1"), "keys", ())) == held)
        sessions.check()
        await until(lambda: fleet.blocks("a") == held)
        await only(fleet, "engine-1")
        status, answer, _ = await fleet.gateway.post(ADVISORIES, {"session_id": "s-1", "expected_arrival_s": 30})
        assert (status, answer["state"]) == (202, "prefetching")
        await until(lambda: fleet.blocks("b") == held)
