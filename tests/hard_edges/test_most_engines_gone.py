"""R11: with five of eight engines lost, the others serve. If most engines are outliers, none is ejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from controlplane.automation.jobs import engine_health as job
from controlplane.automation.models.engine_health import EngineHealth
from controlplane.automation.models.plan_record import PlanRecord
from controlplane.fleet.models.pool import Pool
from gateway.bus.bus import Bus
from gateway.pools.engines.breaker import OPEN
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.controlplane.automation.world import World
from tests.controlplane.conftest import bus, policy, pool, region
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import CHAT, MODEL, ServedGateway, served
from tests.patience import until

__all__ = ["bus", "policy", "pool", "region"]
TURNS = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))
SICK = 5


@asynccontextmanager
async def eight(tmp_path: Path) -> AsyncIterator[tuple[list[ScriptedEngine], ServedGateway]]:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(ScriptedEngine()) for _ in range(8)]
        gateway = await stack.enter_async_context(served([engine.url for engine in engines], tmp_path, policy=TURNS))
        yield engines, gateway


async def asked(gateway: ServedGateway, requests: int) -> Counter[int]:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 40}]}
    return Counter([(await gateway.post(CHAT, {**body, "seed": turn}))[0] for turn in range(requests)])


async def test_three_remaining_engines_share_all_requests(tmp_path: Path) -> None:
    async with eight(tmp_path) as (engines, gateway):
        assert await asked(gateway, 16) == {200: 16}
        for engine in engines[:SICK]:
            await engine.stop()
        statuses = await asked(gateway, 30)
        assert set(statuses) <= {200, 503}
        assert statuses[200] >= 28, "only a request that tries three dead engines before their ejection may fail"
        await until(lambda: sum(gateway.pool.accepts(f"engine-{number}") for number in range(8)) == 3)
        before = [len(engine.bodies) for engine in engines]
        assert await asked(gateway, 30) == {200: 30}
        gained = [len(engine.bodies) - count for engine, count in zip(engines, before, strict=True)]
        assert gained[:SICK] == [0] * SICK
        assert max(gained[SICK:]) <= 2 * min(gained[SICK:])


async def test_requests_are_spread_over_all_but_one_engine_when_most_return_errors(tmp_path: Path) -> None:
    async with eight(tmp_path) as (engines, gateway):
        for engine in engines[:SICK]:
            engine.status = 500
        assert (await asked(gateway, 60))[200] >= 55, "few meet three of them before anything is known"
        breakers = [gateway.pool.engines[f"engine-{number}"].breaker for number in range(8)]
        for turn in range(100):
            # These decisions keep retries out of step with round robin, so that every engine is chosen first at times.
            for number in range(turn % 7):
                await gateway.post("/api/v1/route", {"model": MODEL, "token_ids": [number], "wait": False})
            await asked(gateway, 1)
        assert all(breaker.state == OPEN for breaker in breakers[:SICK])
        accepting = [number for number in range(8) if gateway.pool.accepts(f"engine-{number}")]
        assert len(accepting) == 7
        for engine in engines[:SICK]:
            engine.status = 200
        before = [len(engine.bodies) for engine in engines]
        assert await asked(gateway, 21) == {200: 21}
        gained = [len(engine.bodies) - count for engine, count in zip(engines, before, strict=True)]
        assert all(gained[number] for number in accepting), (
            "engines kept in rotation by the panic threshold serve as soon as they can"
        )


@pytest.mark.django_db
def test_panic_is_recorded_and_keeps_outliers_in_rotation(pool: Pool, bus: Bus) -> None:
    world = World(pool, 8)
    world.publish()

    def judge() -> None:
        world.run(job.JOB, job.judge, job.EVERY)

    try:
        world.pass_time(3, after_step=judge)
        for number in range(1, SICK + 1):
            world.say(f"e-0{number}", failures_in_row=9)
        world.pass_time(20, after_step=judge)
    finally:
        world.observed.stop()
    plan = PlanRecord.objects.filter(job=job.JOB).latest("pk")
    assert plan.figures["panic"] == 1
    assert any("fewer than 50 % of engines are healthy" in reason["text"] for reason in plan.reasons)
    assert EngineHealth.objects.filter(state="quarantined").count() <= 1
