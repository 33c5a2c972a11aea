"""Slow but healthy engines lose no request, start none twice, and stay; dead ones among them are detected.

A real gateway over real connections under a virtual clock. `make soak-slow` runs twenty seeds, CI one.
"""

from __future__ import annotations

import asyncio
import os
import time
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from gateway.base.settings import EngineLimits
from gateway.pools.engines.breaker import NO_PROGRESS
from routing.policy.policy_document import RoutingPolicy
from tests.gateway.slow_engine import FROZEN, HUNG, KILLED, LONGEST_ANSWER_S, LONGEST_START_S
from tests.gateway.slow_fleet import Client, Story, chat, story
from tests.virtual_time import run_virtually

SEEDS = tuple(map(int, os.environ.get("SLOW_SEEDS", "1").split(",")))
REQUESTS, ARRIVALS_S = 60, 400.0
COMPILES = 6
"""Compilations of one of the engines."""
HANG_LIMIT_S = 150.0
"""Hang limit in the runs with dead engines, so that requests leave hung ones in time; above the longest start."""
POLICY = RoutingPolicy(max_wait_s=3600.0)
DETECTED_S = {KILLED: 3.0, FROZEN: 60.0, HUNG: HANG_LIMIT_S + 60.0}
"""Seconds until a dead engine of this kind with requests is lost at the latest."""


def request(rng: Random, seed: int) -> Client:
    """Return a request whose first token, or whole response, can take very long."""
    slow = rng.random() < 0.25
    return chat(
        seed,
        f"{seed} " * rng.randint(10, 2000),
        stream=rng.random() < 0.6,
        start_s=rng.uniform(5.0, LONGEST_START_S) if slow else rng.uniform(0.05, 2.0),
        answer_s=min(LONGEST_ANSWER_S, 2.0 ** rng.uniform(0.0, 10.0)),
    )


async def traffic(fleet: Story, rng: Random) -> None:
    """Send requests until all have ended; meanwhile engines compile occasionally."""

    async def arrive(client: Client, at_s: float) -> None:
        await asyncio.sleep(at_s)
        await fleet.ask(client)

    async def compile_now_and_then() -> None:
        for _ in range(COMPILES):
            await asyncio.sleep(ARRIVALS_S / COMPILES)
            engine = rng.choice(fleet.engines)
            engine.stalled_until_s = time.monotonic() + rng.uniform(10.0, LONGEST_START_S)

    fleet.clients = [request(rng, seed) for seed in range(REQUESTS)]
    compiling = asyncio.create_task(compile_now_and_then())
    await asyncio.gather(*(arrive(item, rng.uniform(0.0, ARRIVALS_S)) for item in fleet.clients))
    await compiling


@pytest.mark.parametrize("seed", SEEDS)
def test_slow_healthy_engines_lose_nothing_start_nothing_twice_and_stay(seed: int, tmp_path: Path) -> None:
    async def run() -> None:
        rng = Random(seed)
        async with story(rng, rng.randint(3, 8), tmp_path, EngineLimits(), POLICY) as fleet:
            await traffic(fleet, rng)
            assert [client.seed for client in fleet.clients if not client.whole] == []
            assert [client.seed for client in fleet.clients if len(fleet.runs(client.seed)) != 1] == []
            assert not [run for engine in fleet.engines for run in engine.runs if run.cancelled]
            for at_s, state in fleet.seen:
                out = {name: cause for name, (accepts, _, cause) in state.items() if not accepts}
                assert set(out.values()) <= {NO_PROGRESS}, (at_s, state)
                assert len(out) <= len(fleet.engines) // 2, (at_s, state)
                assert not any(lost for _, lost, _ in state.values()), (at_s, state)

    run_virtually(run())


@pytest.mark.parametrize("seed", SEEDS)
def test_dead_engines_among_slow_ones_are_detected_and_fail_no_unstarted_request(seed: int, tmp_path: Path) -> None:
    async def run() -> None:
        rng = Random(1000 + seed)
        async with story(rng, rng.randint(4, 8), tmp_path, EngineLimits(hang_limit_s=HANG_LIMIT_S), POLICY) as fleet:
            faults = rng.sample((KILLED, FROZEN, HUNG), 2)
            dead = dict(zip(rng.sample(range(len(fleet.engines)), 2), faults, strict=True))

            async def die() -> None:
                for number, fault in dead.items():
                    await asyncio.sleep(rng.uniform(60.0, 180.0))
                    await fleet.engines[number].fail(fault)

            dying = asyncio.create_task(die())
            await traffic(fleet, rng)
            await dying
            check_requests(fleet)
            check_engines(fleet, dead)

    run_virtually(run())


def check_requests(fleet: Story) -> None:
    """Check that each request ended whole, except streams begun on a dead engine, and moved only from dead engines."""
    for client in fleet.clients:
        runs = fleet.runs(client.seed)
        (*earlier, (last, last_run)) = runs
        for engine, run in earlier:
            assert engine.fault_s is not None, (client.seed, runs)
            assert run.first_piece_s is None, (client.seed, runs)
        for (_, run), (_, following) in pairwise(runs):
            assert run.ended_s is not None and run.ended_s <= following.begun_s, (client.seed, runs)
        begun_on_dead = last.fault_s is not None and last_run.first_piece_s is not None
        assert client.whole or (begun_on_dead and b"broken_stream" in client.text), (client.seed, client.status, runs)


def check_engines(fleet: Story, dead: dict[int, str]) -> None:
    """Check that dead engines were detected in time, and no other engine was lost."""
    for number, engine in enumerate(fleet.engines):
        name = f"engine-{number}"
        lost = [at_s for at_s, state in fleet.seen if state[name][1]]
        if number not in dead:
            assert lost == [], name
            continue
        assert engine.fault_s is not None
        held = [run for run in engine.runs if run.ended_s is None or run.ended_s > engine.fault_s]
        if held or dead[number] != HUNG:
            assert lost, (name, dead[number])
            # A hung engine without work shows no sign until it gets work that it does not finish.
            stuck = [run.begun_s for run in held if run.cancelled or run.ended_s is None]
            since_s = min(stuck, default=0.0) if dead[number] == HUNG else 0.0
            assert lost[0] - max(engine.fault_s, since_s) <= DETECTED_S[dead[number]], (name, dead[number])
