"""Two pools of one model behind one gateway, through the proxy and the decision API."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served, snapshot
from tests.patience import until

SESSIONS = 40


@pytest.fixture
async def engines() -> AsyncIterator[dict[str, ScriptedEngine]]:
    async with ScriptedEngine() as one, ScriptedEngine() as two:
        yield {"one": one, "two": two}


@pytest.fixture
async def gateway(engines: dict[str, ScriptedEngine], tmp_path: Path) -> AsyncIterator[ServedGateway]:
    """Serve each engine in its own pool; the second pool gets a quarter of the sessions."""
    made = snapshot([engine.url for engine in engines.values()])
    pools = tuple(
        msgspec.structs.replace(made.pools[0], pool_id=name, name=name, region=name, weight=weight)
        for name, weight in zip(engines, (75, 25), strict=True)
    )
    placed = tuple(
        msgspec.structs.replace(entry, pool_id=name) for entry, name in zip(made.engines, engines, strict=True)
    )
    bus = InProcessBus()
    bus.publish(SNAPSHOT_TOPIC, encode_snapshot(msgspec.structs.replace(made, pools=pools, engines=placed)))
    async with served([], tmp_path, bus=bus) as running:
        yield running


async def chat(gateway: ServedGateway, session: str) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": f"of {session}"}]}
    status, answer, _ = await gateway.post("/v1/chat/completions", body, headers={"x-session-id": session})
    assert status == 200, answer


async def pool_of(gateway: ServedGateway, session: str) -> str:
    body = {"model": MODEL, "token_ids": list(range(64)), "session_id": session, "wait": False}
    status, answer, _ = await gateway.post("/api/v1/route", body)
    assert status == 200, answer
    await gateway.post(f"/api/v1/requests/{answer['decision_id']}/complete", {})
    return {"engine-0": "one", "engine-1": "two"}[answer["engine"]["id"]]


async def test_both_pools_serve_and_a_session_stays_in_its_pool(
    gateway: ServedGateway, engines: dict[str, ScriptedEngine]
) -> None:
    asked = {name: await pool_of(gateway, name) for name in (f"s{number}" for number in range(SESSIONS))}
    assert Counter(asked.values()).keys() == {"one", "two"}
    for name, pool in asked.items():
        before = {item: len(engine.headers) for item, engine in engines.items()}
        await chat(gateway, name)
        grown = {item for item, engine in engines.items() if len(engine.headers) > before[item]}
        assert grown == {pool}, "the proxy and the decision API agree"


async def test_a_pool_whose_engine_is_gone_gives_its_sessions_to_the_other(
    gateway: ServedGateway, engines: dict[str, ScriptedEngine]
) -> None:
    await engines["one"].stop()
    await until(lambda: not gateway.gateway.pools["one"].router.view.roster.accepting)
    assert {await pool_of(gateway, f"s{number}") for number in range(SESSIONS)} == {"two"}


async def test_a_trial_share_moves_there_and_back_and_decisions_record_it(
    engines: dict[str, ScriptedEngine], tmp_path: Path
) -> None:
    made = snapshot([engine.url for engine in engines.values()])
    placed = tuple(
        msgspec.structs.replace(entry, pool_id=name) for entry, name in zip(made.engines, engines, strict=True)
    )
    bus = InProcessBus()

    def publish(version: int, weight: float, one: str = "", two: str = "") -> None:
        pools = tuple(
            msgspec.structs.replace(made.pools[0], pool_id=name, name=name, weight=share, arm=arm)
            for name, share, arm in (("one", 100, one), ("two", weight, two))
        )
        changed = msgspec.structs.replace(made, version=version, pools=pools, engines=placed)
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(changed))

    async def pools_of_sessions(gateway: ServedGateway, version: int) -> dict[str, str]:
        await until(lambda: gateway.gateway.snapshot_version == version)
        return {name: await pool_of(gateway, name) for name in (f"s{number}" for number in range(SESSIONS))}

    publish(1, 0)
    async with served([], tmp_path, bus=bus) as gateway:
        before = await pools_of_sessions(gateway, 1)
        assert set(before.values()) == {"one"}
        publish(2, 25, "live", "canary")
        small = await pools_of_sessions(gateway, 2)
        publish(3, 100, "live", "canary")
        large = await pools_of_sessions(gateway, 3)
        assert 0 < Counter(small.values())["two"] < Counter(large.values())["two"] < SESSIONS
        assert {name for name in small if small[name] == "two"} < {name for name in large if large[name] == "two"}
        for name, pool in large.items():
            await chat(gateway, name)
            record = max(gateway.app.recent._records.values(), key=lambda item: item.arrived_s)
            decided = record.decision.pool_id, record.decision.arm
            assert decided == (pool, "canary" if pool == "two" else "live")
        metrics = await gateway.metrics()
        # Asked for by the decision API twice, and sent once.
        count = Counter(small.values())["two"] + 2 * Counter(large.values())["two"]
        assert f'headway_trial_requests_total{{arm="canary",outcome="completed",pool="two"}} {count}.0' in metrics
        publish(4, 0)
        assert await pools_of_sessions(gateway, 4) == before
        await chat(gateway, "s0")
        assert max(gateway.app.recent._records.values(), key=lambda item: item.arrived_s).decision.arm == ""
