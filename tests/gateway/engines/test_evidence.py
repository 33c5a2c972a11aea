"""The effect of each kind of evidence about an engine on new work and on running requests (ADR 57), row by row."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from gateway.base.settings import EngineLimits
from gateway.contracts.fleet_sample import TAKING_WORK, decode_sample
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.slow_engine import COUNTING, FROZEN, HUNG, KILLED, LATE_HEALTH, PAUSED, UNHEALTHY, WELL
from tests.gateway.slow_fleet import Client, Story, chat, story
from tests.virtual_time import run_virtually

TURNS = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))
LIMITS = EngineLimits(hang_limit_s=60.0)
BEGUN, UNBEGUN = 0, 2
"""Requests on the engine with the fault."""
STAYS, MOVES, BREAKS = "stays", "moves", "breaks"


class Row(NamedTuple):
    """A fault, its duration, and the state shown after a given time."""

    fault: str
    lasts_s: float
    seen_after_s: float
    state: str
    reason: str
    unbegun: str
    begun: str


ROWS = {
    "connection lost": Row(KILLED, 30.0, 5.0, "lost", "connection refused", MOVES, BREAKS),
    "health and metrics silent": Row(FROZEN, 120.0, 40.0, "lost", "timed out", MOVES, BREAKS),
    "health late, metrics answered": Row(LATE_HEALTH, 120.0, 60.0, "degraded", "metrics are answered", STAYS, STAYS),
    "health answers an error": Row(UNHEALTHY, 60.0, 20.0, "lost", "health answered 503", STAYS, STAYS),
    "paused by its own word": Row(PAUSED, 60.0, 20.0, "lost", "it is paused", MOVES, STAYS),
    "no progress while others move": Row(HUNG, 40.0, 20.0, "quarantined", "suspected: 2 streams", STAYS, STAYS),
    "no progress for the hang limit": Row(HUNG, 160.0, 120.0, "lost", "the hang limit", MOVES, BREAKS),
    "no progress of streams, counters move": Row(COUNTING, 160.0, 120.0, "serving", "", STAYS, STAYS),
}


def shown(fleet: Story) -> tuple[str, str]:
    """Return the displayed state and reason of the engine with the fault."""
    value = fleet.gateway.gateway._bus.latest("fleet")
    assert value is not None
    engine = next(item for item in decode_sample(value).engines if item.engine_id == "engine-0")
    return engine.state, engine.reason


def became(fleet: Story, client: Client) -> str:
    runs = fleet.runs(client.seed)
    if not client.whole:
        assert b"broken_stream" in client.text, (client.status, client.text)
        assert len(runs) == 1
        return BREAKS
    assert [engine for engine, _ in runs] in ([fleet.engines[0]], fleet.engines)
    if len(runs) == 2:
        assert runs[0][1].ended_s is not None and runs[0][1].ended_s <= runs[1][1].begun_s
    return STAYS if len(runs) == 1 else MOVES


@pytest.mark.parametrize("kind", ROWS)
def test_evidence_has_the_effect_in_the_table(kind: str, tmp_path: Path) -> None:
    row = ROWS[kind]

    async def run() -> None:
        async with story(Random(1), 2, tmp_path, LIMITS, TURNS) as fleet:
            clients = [
                chat(BEGUN, answer_s=60.0),
                chat(1, answer_s=row.lasts_s + 20.0),
                chat(UNBEGUN, start_s=15.0, answer_s=20.0),
                chat(3, answer_s=row.lasts_s + 20.0),
            ]
            asking = []
            for client in clients:
                asking.append(asyncio.create_task(fleet.ask(client)))
                await asyncio.sleep(1.0)
            assert [run.seed for run in fleet.engines[0].runs] == [BEGUN, UNBEGUN]
            await asyncio.sleep(6.0)
            await fleet.engines[0].fail(row.fault)
            await asyncio.sleep(row.seen_after_s)
            waited_s = 0.0
            # A single probe may find /metrics late as well; the next one decides.
            while row.reason not in shown(fleet)[1] and waited_s < 20.0:
                waited_s += 1.0
                await asyncio.sleep(1.0)
            state, reason = shown(fleet)
            assert (state, row.reason in reason) == (row.state, True), reason
            assert fleet.gateway.pool.accepts("engine-0") == (state in TAKING_WORK)
            await asyncio.sleep(row.lasts_s - row.seen_after_s - waited_s)
            if row.fault != KILLED:
                await fleet.engines[0].fail(WELL)
            await asyncio.gather(*asking)
            assert became(fleet, clients[UNBEGUN]) == row.unbegun
            assert became(fleet, clients[BEGUN]) == row.begun
            assert clients[1].whole
            assert clients[3].whole
            if row.fault != KILLED:
                await asyncio.sleep(40.0)
                assert shown(fleet)[0] in TAKING_WORK, "a fault that is over leaves nothing behind"

    run_virtually(run())


def test_the_total_timeout_ends_an_attempt_without_judging_the_engine(tmp_path: Path) -> None:
    async def run() -> None:
        limits = EngineLimits(hang_limit_s=1000.0, answer_limit_s=50.0)
        async with story(Random(1), 2, tmp_path, limits, TURNS) as fleet:
            endless = [
                chat(0, answer_s=9000.0, max_tokens=1),
                chat(1, stream=False, answer_s=9000.0, max_tokens=1),
                chat(2, answer_s=200.0, max_tokens=4000),
            ]
            await asyncio.gather(*(fleet.ask(client) for client in endless))
            assert became(fleet, endless[0]) == BREAKS
            assert (endless[1].status, len(fleet.runs(1))) == (504, 1)
            assert endless[2].whole, "it asked for many tokens"
            assert all(run.cancelled for seed in (0, 1) for _, run in fleet.runs(seed))
            assert {fleet.gateway.pool.accepts(name) for name in ("engine-0", "engine-1")} == {True}

    run_virtually(run())
