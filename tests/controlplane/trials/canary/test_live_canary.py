"""A gateway over simulated engines: a policy that sends everything to one engine is aborted automatically."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.access.api_keys import create_api_key
from controlplane.fleet.engine_registration import register_engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.tenant import Tenant
from controlplane.policies.publish import draft
from controlplane.publication.snapshot import publish
from controlplane.trials.canary.arm_intake import ArmIntake
from controlplane.trials.canary.job import evaluate_canaries
from controlplane.trials.canary.lifecycle import start_canary
from controlplane.trials.models.canary import Canary
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import Bus
from tests.controlplane.simulated_engine import SimulatedEngine
from tests.controlplane.trials.canary.scene import ACTOR, live_version
from tests.gateway.served_gateway import ServedGateway, served
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]
START = "Everybody's prompt begins with the same words, so that affinity sends all of them to one engine. " * 50
PER_S = 14


class Traffic:
    """Sends conversations through a gateway in a thread until it is stopped."""

    def __init__(self, bus: Bus, state_dir: Path, key: str) -> None:
        self._stop = threading.Event()
        self._arguments = bus, state_dir, key
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, and wait for the end."""
        self._stop.set()
        self._thread.join(20)

    async def _run(self) -> None:
        bus, state_dir, key = self._arguments
        rng = random.Random(5)
        settings = GatewaySettings(arm_report_interval_s=0.5)
        async with served([], state_dir, bus=bus, gateway_settings=settings) as gateway:
            asked = []
            while not self._stop.is_set():
                asked.append(asyncio.create_task(_ask(gateway, key, rng.randrange(1000), rng.randrange(1 << 30))))
                await asyncio.sleep(1 / PER_S)
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)


async def _ask(gateway: ServedGateway, key: str, session: int, unlike: int) -> None:
    body = {
        "model": "m-8b", "prompt": START + f"{unlike} " * 600, "max_tokens": 2, "stream": True,
        "session_id": f"s{session}",
    }  # fmt: skip
    headers = {"authorization": f"Bearer {key}"}
    async with gateway.client.post(f"{gateway.url}/v1/completions", json=body, headers=headers) as answer:
        await answer.read()


@contextmanager
def engines(*speeds: float) -> Iterator[list[SimulatedEngine]]:
    """Start engines with these speeds relative to a real one."""
    made = [SimulatedEngine(events=False, extra=("--time-scale", f"{speed:g}")) for speed in speeds]
    try:
        for item in made:
            item.start()
        yield made
    finally:
        for item in made:
            item.stop()


def watch(bus: Bus, traffic: Traffic) -> None:
    """Evaluate under traffic until no canary runs, or for PATIENCE_S."""
    publish()
    intake = ArmIntake(bus)
    traffic.start()
    began = time.monotonic()
    try:
        while time.monotonic() - began < PATIENCE_S and Canary.objects.filter(state="running").exists():
            time.sleep(0.5)
            evaluate_canaries(intake)
    finally:
        traffic.stop()
        intake.stop()


def test_policy_that_floods_one_engine_is_aborted(pool: Pool, tenant: Tenant, bus: Bus, tmp_path: Path) -> None:
    Pool.objects.filter(pk=pool.pk).update(key_source="approximate")
    live_version(pool.policy)
    _, key = create_api_key(tenant, "load", actor=ACTOR)
    with engines(1, 1, 1) as running:
        for number, engine in enumerate(running):
            register_engine(pool, f"e-{number}", engine.url, actor=ACTOR)
        guardrails = {"min_requests": 20, "window_s": 20}
        # Without a bound on loads, prompts that begin alike all go to one engine.
        floods = {"placement": {"name": "consistent_hash", "params": {"load_bound": 1000, "key_blocks": 2}}}
        tried = draft(pool.policy, floods, actor=ACTOR)
        canary = start_canary(tried, steps=(0.5,), guardrails=guardrails, actor=ACTOR)
        watch(bus, Traffic(bus, tmp_path, key))
    canary.refresh_from_db()
    assert canary.state == "aborted", canary.evaluation
    assert AuditEvent.objects.filter(verb="canary.abort", object_id=canary.key).count() == 1


@pytest.mark.thorough
def test_pool_of_slow_engines_is_aborted_and_returns_its_share(
    pool: Pool, tenant: Tenant, bus: Bus, tmp_path: Path
) -> None:
    Pool.objects.filter(pk=pool.pk).update(key_source="approximate")
    live_version(pool.policy)
    slow = Pool.objects.create(
        slug="slow", name="Slow", region=pool.region, served_model=pool.served_model, policy=pool.policy,
        key_source="approximate", weight=0,
    )  # fmt: skip
    _, key = create_api_key(tenant, "load", actor=ACTOR)
    with engines(1, 1, 0.2) as running:
        for number, (engine, of) in enumerate(zip(running, (pool, pool, slow), strict=True)):
            register_engine(of, f"e-{number}", engine.url, actor=ACTOR)
        guardrails = {"min_requests": 20, "window_s": 20}
        canary = start_canary(slow, steps=(0.2,), guardrails=guardrails, actor=ACTOR)
        assert {item.pool_id: item.arm for item in publish().pools} == {"chat": "live", "slow": "canary"}
        watch(bus, Traffic(bus, tmp_path, key))
    canary.refresh_from_db()
    assert canary.state == "aborted", canary.evaluation
    assert "pool slow" in canary.reason
    assert {item.pool_id: (item.arm, item.weight) for item in publish().pools} == {"chat": ("", 100), "slow": ("", 0)}
