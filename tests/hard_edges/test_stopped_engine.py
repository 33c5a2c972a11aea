"""R9: a stopped engine leaves rotation and returns slowly, in process, prober, health evaluation, and gateway."""

from __future__ import annotations

import asyncio
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async

from controlplane.automation.jobs import engine_health as job
from controlplane.automation.models.engine_health import EngineHealth
from controlplane.automation.observation import FleetObservation
from controlplane.automation.rounds import run_rounds
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.platform.live_fleet.samples import FleetSamples
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.publication.snapshot import build_snapshot
from gateway.base.settings import BreakerSettings
from gateway.pools.engines.breaker import Breaker
from tests.gateway.live_gateway import LiveGateway
from tests.gateway.pools.engines.test_engine_processes import BLOCK, EngineProcess, probed_gateway
from tests.gateway.pools.engines.test_engine_processes import engines as engine_processes
from tests.patience import PATIENCE_S, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]
engines = engine_processes


def test_two_failed_probes_take_an_engine_out_of_rotation() -> None:
    breaker = Breaker(BreakerSettings(), 0.0)
    breaker.observe_probe(True, "", 0.0)
    breaker.observe_probe(False, "timed out", 1.0)
    breaker.observe_probe(False, "timed out", 2.0)
    assert not breaker.accepts


def registered(engines: list[EngineProcess]) -> Pool:
    """Store the engines under the ids that the gateway uses."""
    policy = Policy.objects.create(slug="p", name="P")
    policy.live_version = PolicyVersion.objects.create(
        policy=policy, number=1, routing_document={}, automation_document={"health": {"slow_start_s": 20}}
    )
    policy.save()
    region = Region.objects.create(slug="here", name="Here")
    pool = Pool.objects.create(
        slug="pool", name="Pool", region=region, served_model="m", policy=policy, block_tokens=BLOCK
    )
    for engine in engines:
        entry = engine.entry
        Engine.objects.create(
            pool=pool,
            engine_id=entry.engine_id,
            name=entry.engine_id,
            url=entry.url,
            connect_url=entry.url,
            kv_events_endpoint=entry.kv_events_endpoint,
            kv_replay_endpoint=entry.kv_replay_endpoint,
        )
    return pool


def judged(live: LiveGateway, observed: FleetObservation) -> str:
    """Run the due round and publish its result; return the verdict on engine a."""
    run_rounds(job.JOB, job.EVERY, partial(job.judge, observed=observed))
    live.publish(build_snapshot(at=time.time()))
    row = EngineHealth.objects.filter(engine__engine_id="a").first()
    return row.state if row is not None else "healthy"


async def verdict_until(wanted: str, live: LiveGateway, observed: FleetObservation) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await sync_to_async(judged)(live, observed) != wanted:
            await asyncio.sleep(0.2)


async def test_stopped_engine_leaves_rotation_and_returns_with_a_growing_share(
    tmp_path: Path, engines: list[EngineProcess]
) -> None:
    await sync_to_async(registered)(engines)
    async with probed_gateway(tmp_path, engines) as live:
        observed = FleetObservation(live.bus, FleetSamples(live.bus))
        try:
            await until(lambda: live.bus.latest("fleet") and live.shown("a").report_age_s is not None)
            await verdict_until("healthy", live, observed)
            engines[0].send(signal.SIGSTOP)
            try:
                await until(lambda: not live.pool.accepts("a"))
                assert live.pool.accepts("b")
                await verdict_until("quarantined", live, observed)
            finally:
                engines[0].send(signal.SIGCONT)
            await verdict_until("probation", live, observed)
            await until(lambda: live.pool.accepts("a") or live.engine("a").entry.health == "probation")
            shares: list[float] = []

            def grown() -> bool:
                live.pool.refresh()
                shares.append(next(fact.speed for fact in live.pool._facts if fact.engine_id == "a"))
                return shares[-1] > shares[0]

            await until(grown)
            assert shares[0] < 1.0, "it begins with less than its load"
            assert next(fact.speed for fact in live.pool._facts if fact.engine_id == "b") == 1.0
        finally:
            observed.stop()
