"""Publish policies 200 times a minute under replayed load: `python -m bench.installation.publish_storm --minutes M`.

The whole program runs with two simulated engines. An editor drafts and publishes through the API while conversations
are replayed. No request can be dropped, and every decision must carry exactly one version that was live when it was
made, within the two seconds that a publication takes to arrive everywhere.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import aiohttp

from bench.live.live_fleet import MODEL
from bench.live.live_program import LiveProgram, live_program
from bench.report import Target, command_line, write_report
from routing.registry import stage_pairs
from simulator.replay.replay_options import ReplayOptions
from simulator.replay.replay_request import request_body, send_row
from simulator.workloads.conversation_like import generate

PER_MINUTE = 200
QPS = 8.0
MAX_INPUT = 4096
FOLLOW_S = 2.0
_ALL_ROUNDS = 10_000
_MANAGE_KEY = """
from controlplane.models import Role, Tenant
from controlplane.platform.actor import program
from controlplane.access.api_keys import create_api_key
key, text = create_api_key(Tenant.objects.first(), "storm", actor=program("bench"), role=Role.ADMIN,
    scopes=("infer", "route", "manage"))
print("KEY", text)
"""


@dataclass(slots=True)
class Publication:
    """One version, and when its publication began and ended (Unix seconds)."""

    version: int
    asked_at: float
    answered_at: float


@dataclass(slots=True)
class Storm:
    """The record of one storm: publications in order, replies, and the version of each decision."""

    publications: list[Publication] = field(default_factory=list)
    rejected_publications: list[int] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    decision_ids: list[str] = field(default_factory=list)
    decided: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Decision → (Unix seconds, policy version)."""
    seconds: float = 0.0

    def staleness_s(self, decided_at: float, version: int) -> float | None:
        """Return how long the version had been replaced when it was used, None if it was never live before."""
        for position, publication in enumerate(self.publications):
            if publication.version != version:
                continue
            if decided_at < publication.asked_at - 0.05:
                return None
            after = self.publications[position + 1 : position + 2]
            return max(0.0, decided_at - after[0].answered_at) if after else 0.0
        return None


async def storm(program: LiveProgram, key: str, *, seconds: float, per_minute: float, qps: float) -> Storm:
    """Publish and replay concurrently for `seconds`, then read every decision."""
    result = Storm()
    tracing = aiohttp.TraceConfig()

    async def note(_session: object, _context: SimpleNamespace, end: aiohttp.TraceRequestEndParams) -> None:
        decision = end.response.headers.get("x-headway-decision")
        if decision:
            result.decision_ids.append(decision)

    tracing.on_request_end.append(note)
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as editor,
        aiohttp.ClientSession(headers=headers, trace_configs=[tracing]) as client,
    ):
        await _wait_for_key(program, editor)
        started = time.monotonic()
        await _first_version(program, editor, result)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_publish_on(program, editor, result, seconds, 60.0 / per_minute))
            tasks.create_task(_replay(program, client, key, result, seconds, qps))
        result.seconds = time.monotonic() - started
        await _read_decisions(program, editor, result)
    return result


async def _wait_for_key(program: LiveProgram, session: aiohttp.ClientSession) -> None:
    """Wait until the gateway has received the key, which a command in another process created."""
    async with asyncio.timeout(30):
        while True:
            async with session.get(f"{program.url}/v1/models") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.05)


async def _first_version(program: LiveProgram, session: aiohttp.ClientSession, result: Storm) -> None:
    async with session.get(f"{program.url}/api/v1/policies/default") as answer:
        live = int((await answer.json())["live_version"])
    result.publications.append(Publication(live, 0.0, 0.0))


async def _publish_on(
    program: LiveProgram, session: aiohttp.ClientSession, result: Storm, seconds: float, pause_s: float
) -> None:
    """Draft and publish at a steady rate. Each version has another placement, order, and objective."""
    documents = _documents()
    start = time.monotonic()
    for number in itertools.count():
        due_s = number * pause_s
        if due_s >= seconds:
            return
        await asyncio.sleep(max(0.0, start + due_s - time.monotonic()))
        await _publish(program, session, result, next(documents))


def _documents() -> itertools.cycle[dict[str, Any]]:
    stages = ((*pair, slo) for pair in sorted(stage_pairs()) for slo in (4.0, 6.0))
    return itertools.cycle(
        [
            {"placement": {"name": placement}, "order": {"name": order}, "ttft_slo_s": slo}
            for placement, order, slo in stages
        ]
    )


async def _publish(
    program: LiveProgram, session: aiohttp.ClientSession, result: Storm, document: Mapping[str, Any]
) -> None:
    versions = f"{program.url}/api/v1/policies/default/versions"
    async with session.post(versions, json={"document": document, "message": "storm"}) as answer:
        drafted = await answer.json()
        if answer.status != 201:
            result.rejected_publications.append(answer.status)
            return
    asked_at = time.time()
    body = {"instead_of": result.publications[-1].version}
    async with session.post(f"{versions}/{drafted['number']}/publish", json=body) as answer:
        await answer.read()
        if answer.status != 200:
            result.rejected_publications.append(answer.status)
            return
    result.publications.append(Publication(drafted["number"], asked_at, time.time()))


async def _replay(
    program: LiveProgram, session: aiohttp.ClientSession, key: str, result: Storm, seconds: float, qps: float
) -> None:
    options = ReplayOptions(target=program.url, model=MODEL, api_key=key, max_input=MAX_INPUT)
    rows = generate(min(_ALL_ROUNDS, max(1, int(seconds * qps))), seed=7)
    start = time.monotonic()

    async def send(number: int) -> None:
        body = request_body(rows[number], number, options, "storm")
        outcome = await send_row(session, body, options)
        result.outcomes[outcome.status] += 1
        if outcome.error:
            result.errors[outcome.error] += 1

    async with asyncio.TaskGroup() as tasks:
        for number in range(len(rows)):
            await asyncio.sleep(max(0.0, start + number / qps - time.monotonic()))
            tasks.create_task(send(number))


async def _read_decisions(program: LiveProgram, session: aiohttp.ClientSession, result: Storm) -> None:
    for decision_id in result.decision_ids:
        async with session.get(f"{program.url}/api/v1/explain/{decision_id}") as answer:
            if answer.status == 200:
                record = await answer.json()
                result.decided[decision_id] = (record["decided_at"], record["decision"]["policy_version"])


def manage_key(program: LiveProgram) -> str:
    """Return a new API key with management permission."""
    return program.shell(_MANAGE_KEY).split("KEY ")[1].strip()


def figures_of(result: Storm) -> dict[str, float]:
    """Return the figures of one storm."""
    made = result.publications[1:]
    took = sorted(item.answered_at - item.asked_at for item in made) or [0.0]
    stale = [result.staleness_s(at, version) for at, version in result.decided.values()]
    return {
        "seconds": round(result.seconds, 1),
        "publishes": len(made),
        "publishes_per_min": round(60 * len(made) / max(result.seconds, 1e-9), 1),
        "publishes_rejected": len(result.rejected_publications),
        "publish_p50_s": round(statistics.median(took), 4),
        "publish_p99_s": round(took[int(0.99 * (len(took) - 1))], 4),
        "requests": sum(result.outcomes.values()),
        "requests_dropped": sum(count for status, count in result.outcomes.items() if status != "ok"),
        "decisions_unknown": len(result.decision_ids) - len(result.decided),
        "versions_used": len({version for _, version in result.decided.values()}),
        "decisions_of_no_version": sum(1 for item in stale if item is None),
        "stale_max_s": round(max((item for item in stale if item is not None), default=0.0), 3),
    }


def targets_of(figures: Mapping[str, float]) -> dict[str, Target]:
    """Return the targets of these figures."""
    bounds: Sequence[tuple[str, str, float]] = (
        ("requests_dropped", "<=", 0),
        ("publishes_rejected", "<=", 0),
        ("decisions_unknown", "<=", 0),
        ("decisions_of_no_version", "<=", 0),
        ("stale_max_s", "<=", FOLLOW_S),
        ("publishes_per_min", ">=", PER_MINUTE * 0.95),
    )
    return {name: Target(value=figures[name], op=op, target=bound) for name, op, bound in bounds}


def main() -> None:
    """Run the storm and report."""
    parser = command_line("publish_storm", __doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--per-minute", type=float, default=PER_MINUTE)
    parser.add_argument("--qps", type=float, default=QPS)
    options = parser.parse_args()
    with TemporaryDirectory() as folder, live_program(Path(folder), engines=True) as program:
        result = asyncio.run(
            storm(
                program,
                manage_key(program),
                seconds=60 * options.minutes,
                per_minute=options.per_minute,
                qps=options.qps,
            )
        )
    figures = figures_of(result)
    if result.errors:
        print(f"errors: {dict(result.errors)}")
    write_report("publish_storm", figures, targets_of(figures), options.json)


if __name__ == "__main__":
    main()
