"""An installation under random kills: `python -m bench.installation.soak --minutes M --seed S --json OUT --log FILE`.

Starts web, two workers and their beat, two gateways, four engines, PostgreSQL, and Redis. Clients send requests while
processes are killed at random, policy versions are published, and the size of a pool behind a webhook changes.
Afterwards the history of every request and of every job's effects is checked: no request lost before its first byte,
every order executed once, no decision by an unpublished version or one older than the previous, no remaining process,
bounded memory. Exits with 1 if a check fails.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

from bench.installation.soak_run.engine_service import EngineService
from bench.installation.soak_run.installation import MODEL, ROOT, Installation
from bench.installation.soak_run.kills import Killer
from bench.installation.soak_run.policy_versions import Published, wrong_versions
from bench.installation.soak_run.verdict import DOUBLES, ENGINES, ORDERS, wrong_effects, wrong_requests
from bench.live.client_history import Asked, ClientHistory, Decided
from bench.live.decision_history import DecisionHistory
from bench.live.decision_history import figures as decision_figures
from bench.report import Target, command_line, write_report
from tests.private_postgresql import own_database, postgresql
from tests.private_redis import private_redis

QPS, BURST_QPS = 3.0, 8.0
DECIDERS = 1
WISH_S = 12.0
MOST_HOOKED = 3
SETTLE_S = 90.0
FIRST_VERSION = 1
"""The policy version of a new installation."""
MEMORY_MIB = 500.0
"""Memory limit of each process at any time."""
_OPERATOR = """
import sys, time
from datetime import timedelta
from django.utils import timezone
from controlplane.models import Policy, Pool
from controlplane.platform.actor import program
from controlplane.policies.publish import draft, publish_version
from controlplane.automation.switches import take_over
me = program("soak")
for line in sys.stdin:
    until = timezone.now() + timedelta(hours=1)
    take_over(Pool.objects.get(slug="hooked"), until=until, engines=int(line), actor=me)
    policy = Policy.objects.get(slug="default")
    live = policy.live_version
    version = draft(policy, live.document, actor=me)
    begun_at = time.time()
    publish_version(version, instead_of=live.number, actor=me)
    print(version.number, begun_at, flush=True)
"""


class Soak:
    """One run. Mutable: the clients' history, the kills, the operator's orders, and memory samples."""

    def __init__(self, installation: Installation, service: EngineService, api_key: str, seed: int) -> None:
        urls = installation.gateway_urls
        self.clients = ClientHistory(urls, api_key, MODEL, seed, persistent=True, asks_why=True)
        self.decisions = DecisionHistory(urls, api_key, MODEL)
        self.killer = Killer(installation, seed, self.clients.now)
        self.wishes: list[tuple[float, int]] = []
        self.published = [Published(FIRST_VERSION, 0.0)]
        self.memory: list[tuple[float, dict[str, float]]] = []
        self._installation = installation
        self._service = service
        self._rng = random.Random(seed + 2)

    @property
    def decided(self) -> list[Decided]:
        """Decisions that gateways reported while they were reachable."""
        return [item.decided for item in self.clients.asked if item.decided is not None]

    async def run(self, seconds: float) -> None:
        """Run all processes for `seconds`, and then until they are idle."""
        stop, settled = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self.clients.run(_rate, stop))
            parts.create_task(self.decisions.run(DECIDERS, stop))
            parts.create_task(self.killer.run(stop))
            # Awaited before settling: the last wish sets the target.
            wishes = parts.create_task(self._wish(stop))
            parts.create_task(self._sample(settled))
            await asyncio.sleep(seconds)
            stop.set()
            await wishes
            await self._settle()
            settled.set()

    def gateway_away(self) -> list[tuple[float, float]]:
        """Return the periods without a gateway, in seconds of the decisions' history."""
        # Kills are dated in the clients' history, which begins at another moment.
        later_s = self.clients.began - self.decisions.began
        kills = [kill for kill in self.killer.kills if kill.name.startswith("gateway")]
        return [(kill.at_s + later_s, kill.back_s + later_s) for kill in kills]

    async def _wish(self, stop: asyncio.Event) -> None:
        """Set the target number of engines behind the webhook, and publish a policy version with each change.

        The last target is one engine.
        """
        command = [sys.executable, "manage.py", "shell", "--no-imports", "-c", _OPERATOR]
        environment = dict(self._installation.environment)
        operator = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        if operator.stdin is None or operator.stdout is None:
            raise RuntimeError("the operator's shell has no input")
        wanted = 0
        while not stop.is_set():
            wanted = self._rng.choice([number for number in range(1, MOST_HOOKED + 1) if number != wanted])
            await self._order(operator, wanted)
            await asyncio.sleep(WISH_S)
        # A known target, against which the effects of all orders are checked.
        await self._order(operator, 1)
        operator.stdin.close()
        await operator.wait()

    async def _order(self, operator: asyncio.subprocess.Process, wanted: int) -> None:
        if operator.stdin is None or operator.stdout is None:
            raise RuntimeError("the operator's shell has no input")
        operator.stdin.write(f"{wanted}\n".encode())
        await operator.stdin.drain()
        number, _, begun_at = (await operator.stdout.readline()).decode().partition(" ")
        if not begun_at:
            raise RuntimeError("the operator's shell did not take the order")
        self.published.append(Published(int(number), float(begun_at)))
        self.wishes.append((self.clients.now(), wanted))

    async def _settle(self) -> None:
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            rows = await asyncio.to_thread(rows_of, self._installation)
            if not wrong_effects(self._service, 1, rows):
                return
            await asyncio.sleep(1.0)

    async def _sample(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.memory.append((self.clients.now(), self._installation.sample_memory()))
            await asyncio.sleep(2.0)


def _rate(now_s: float) -> float:
    return BURST_QPS if now_s % 20.0 < 4.0 else QPS


def rows_of(installation: Installation) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of orders, engines, and duplicates in the installation's database."""
    queries = {**DOUBLES, "orders": ORDERS, "engines": ENGINES}
    with psycopg.connect(installation.environment["DATABASE_URL"]) as database:
        return {name: database.execute(query).fetchall() for name, query in queries.items()}


def soak(minutes: float, seed: int) -> tuple[dict[str, float], list[str], list[str]]:
    """Return the figures, all violations, and the log's lines."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        directory = Path(folder)
        with postgresql() as server, own_database(server) as database, private_redis(directory) as redis:
            installation, service = Installation(directory, database, redis.url), EngineService(ROOT)
            service.environment = installation.environment
            try:
                api_key = installation.start_all(service.url)
                run = Soak(installation, service, api_key, seed)
                asyncio.run(run.run(60 * minutes))
                rows = rows_of(installation)
                wrong = wrong_requests(run.clients.asked, run.killer.kills) + wrong_effects(service, 1, rows)
                wrong += wrong_versions(run.decided, run.published)
            finally:
                stubborn = installation.stop_all()
                service.close()
            orphans = installation.orphans()
    wrong += [f"{item} did not end on SIGTERM" for item in stubborn] + [f"left over: {orphan}" for orphan in orphans]
    wrong += [f"{name} grew to {size:.0f} MiB" for name, size in installation.peak_mib.items() if size > MEMORY_MIB]
    figures = _figures(run, service, rows, installation.peak_mib) | {
        "minutes": minutes,
        "seed": seed,
        "orphans": len(orphans),
    }
    return figures, wrong, _log(run, rows, wrong)


def _figures(
    run: Soak, service: EngineService, rows: Mapping[str, Sequence[tuple[Any, ...]]], peak_mib: Mapping[str, float]
) -> dict[str, float]:
    asked = run.clients.asked
    waits = sorted(item.ttft_s for item in asked if item.ttft_s is not None)
    kills = [kill.name.split("-")[0] for kill in run.killer.kills]
    return {
        "requests": len(asked),
        **{fate: sum(item.fate == fate for item in asked) for fate in ("whole", "broken_off", "rejected", "lost")},
        "asked_again": sum(item.attempts > 1 for item in asked),
        "ttft_p50_s": round(statistics.median(waits), 3) if waits else 0.0,
        "ttft_worst_s": round(waits[-1], 3) if waits else 0.0,
        **{f"killed_{kind}": kills.count(kind) for kind in ("worker", "beat", "gateway", "engine", "web")},
        **decision_figures(run.decisions.decided, run.gateway_away()),
        "orders": len(rows["orders"]),
        "effects": len(service.started) + len(service.stopped),
        "calls": sum(service.calls.values()),
        "versions": len(run.published),
        "explained": len(run.decided),
        "peak_mib": round(max(peak_mib.values()), 1),
    }


def _log(run: Soak, rows: Mapping[str, Sequence[tuple[Any, ...]]], wrong: Sequence[str]) -> list[str]:
    """Return log lines: kills (k), target sizes (w), requests (r), and orders.

    A request's line states its number, stream or whole, attempts, outcome, first byte, and end.
    """
    lines = [(kill.at_s, f"k {kill.name} back {kill.back_s:.1f}") for kill in run.killer.kills]
    lines += [(at_s, f"w {wanted}") for at_s, wanted in run.wishes]
    lines += [(item.sent_s, _line(item)) for item in run.clients.asked]
    listed = [f"{at_s:.2f} {text}" for at_s, text in sorted(lines)]
    listed += [f"order {number} {kind} {state}" for number, (_, kind, state, _) in enumerate(rows["orders"])]
    return [*listed, *(f"WRONG {item}" for item in wrong)]


def _line(asked: Asked) -> str:
    first, end = (f"{at_s:.2f}" if at_s is not None else "-" for at_s in (asked.first_s, asked.ended_s))
    return f"r {asked.number} {'s' if asked.streams else 'w'} {asked.attempts} {asked.fate} {first} {end}"


def main() -> int:
    """Soak, report, and return 1 if a check failed."""
    parser = command_line("soak", __doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, default=Path("var/bench/soak.log"), metavar="FILE")
    options = parser.parse_args()
    figures, wrong, log = soak(options.minutes, options.seed)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    options.log.write_text("\n".join(log) + "\n", encoding="utf-8")
    figures["load_average"] = round(os.getloadavg()[0], 1)
    targets = {
        "wrong": Target(value=float(len(wrong)), op="<=", target=0.0),
        "lost": Target(value=figures["lost"] + figures["decisions_lost"], op="<=", target=0.0),
        "decisions_rejected": Target(value=figures["decisions_rejected"], op="<=", target=0.0),
        "decision_p99_ratio": Target(value=figures["decision_p99_ratio"], op="<=", target=3.0),
        "orphans": Target(value=figures["orphans"], op="<=", target=0.0),
        "peak_mib": Target(value=figures["peak_mib"], op="<=", target=MEMORY_MIB),
    }
    write_report("soak", figures, targets, options.json)
    for line in wrong[:40]:
        print(f"wrong: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
