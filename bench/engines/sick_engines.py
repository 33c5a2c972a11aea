"""Engines that fail under live traffic: `python -m bench.engines.sick_engines --json OUT`.

Starts the program with four simulated engines, sends bursty traffic, and injects a fault into one engine after the
other. It measures the time until the engine is out of rotation and until it is back, and the outcomes of all requests
during that time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import msgspec

from bench.evidence.store import Result, Row, write
from bench.live.client_history import Asked, ClientHistory
from bench.live.live_program import LiveProgram
from bench.live.rotation_watch import RotationWatch
from bench.report import command_line

ENGINES = 4
MODEL = "loopback-8b"
QPS, BURST_QPS, PERIOD_S, BURST_S = 5.0, 12.0, 20.0, 5.0
DETECTED_LIMIT_S, BACK_LIMIT_S, FULL_LIMIT_S = 45.0, 150.0, 60.0
WARM_S = 6.0
SERVING_S, ILL_S = 12.0, 6.0
"""Duration of a fault whose engine still serves, and of any other fault after its detection."""
FLAP_DOWN_S, FLAP_UP_S = 1.5, 3.0
KINDS = ("hang", "compile", "stop", "crawl", "lie", "idle", "sleep", "flap", "flap_again", "frozen", "garbage", "busy")
"""Faults in order. flap_again uses the engine that flapped before."""
SERVING = ("frozen", "garbage", "busy")
"""Faults of metrics and probes only: the engine serves, so it should become suspect but not be ejected."""
OPTIONS = ("--block-size", "64", "--num-blocks", "4000", "--stream-interval", "4", "--faults")


def rate(now_s: float) -> float:
    """Return the arrival rate in requests/s, with a burst at the start of each period."""
    return BURST_QPS if now_s % PERIOD_S < BURST_S else QPS


class SickRun:
    """One program under traffic. Mutable: it injects faults into engines and heals them."""

    def __init__(
        self, program: LiveProgram, clients: ClientHistory, watch: RotationWatch, *, to_the_end: bool = True
    ) -> None:
        """Prepare a run. With `to_the_end`, wait after each fault until the engine's state is `in` again."""
        self._to_the_end = to_the_end
        self._program = program
        self._clients = clients
        self._watch = watch

    async def healthy(self, seconds: float) -> Row:
        """Watch healthy engines. Any ejection is a false positive."""
        before, began = len(self._watch.history), self._clients.now()
        await asyncio.sleep(seconds)
        wrongly = [f"{name}: {state}" for _, name, state in self._watch.history[before:] if state not in _IN]
        return {"kind": "none", "seconds": seconds, "wrongly": [*wrongly], **self._fates(began)}

    async def fault(self, kind: str, victim: int) -> Row:
        """Inject a fault into an engine until it is out of rotation, heal it, and return the figures."""
        name = f"e{victim}"
        began, before = self._clients.now(), len(self._watch.history)
        heal = await self._strike(kind, victim)
        out_s = await self._watch.until(name, out=True, limit_s=SERVING_S if kind in SERVING else DETECTED_LIMIT_S)
        flapping_s = (
            await self._watch.until_state(name, "flapping", DETECTED_LIMIT_S) if kind.startswith("flap") else None
        )
        if out_s is not None and flapping_s is None:
            await asyncio.sleep(ILL_S)
        states = [state for _, engine, state in self._watch.history[before:] if engine == name]
        await heal()
        back_s = await self._watch.until(name, out=False, limit_s=BACK_LIMIT_S) if out_s is not None else None
        others = [
            f"{engine}: {state}"
            for _, engine, state in self._watch.history[before:]
            if engine != name and state not in _IN
        ]
        return {
            "kind": kind,
            "out_after_s": out_s,
            "as": next((state for state in states if state not in _IN), states[0] if states else "unseen"),
            "held_as_flapping_after_s": flapping_s,
            "back_after_s": back_s,
            "full_after_s": None if back_s is None or not self._to_the_end else await self._full(name, back_s),
            "others_out": [*others],
            **self._fates(began),
        }

    async def _full(self, name: str, back_s: float) -> float | None:
        """Return the seconds from the healing until the engine's state is `in` again."""
        more_s = await self._watch.until_state(name, "in", FULL_LIMIT_S)
        return None if more_s is None else back_s + more_s

    async def _strike(self, kind: str, victim: int) -> Callable[[], Awaitable[None]]:
        if kind == "stop":
            pid = self._program.engines[victim].pid
            os.kill(pid, signal.SIGSTOP)
            return lambda: asyncio.to_thread(os.kill, pid, signal.SIGCONT)
        if kind.startswith("flap"):
            flapping = asyncio.create_task(self._flap(victim))
            return lambda: self._steady(flapping, victim)
        await self._set_fault(victim, kind)
        return lambda: self._set_fault(victim, "")

    async def _flap(self, victim: int) -> None:
        while True:
            await asyncio.to_thread(self._program.kill_engine, victim)
            await asyncio.sleep(FLAP_DOWN_S)
            await asyncio.to_thread(self._program.restart_engine, victim)
            await asyncio.sleep(FLAP_UP_S)

    async def _steady(self, flapping: asyncio.Task[None], victim: int) -> None:
        flapping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await flapping
        if self._program.engines[victim].poll() is not None:
            await asyncio.to_thread(self._program.restart_engine, victim)

    async def _set_fault(self, victim: int, fault: str) -> None:
        url = self._program.engine_urls[victim]
        async with aiohttp.ClientSession() as session, session.post(f"{url}/fault", json={"fault": fault}) as answer:
            answer.raise_for_status()

    def _fates(self, since_s: float) -> Row:
        return fates([item for item in self._clients.asked if item.sent_s >= since_s])


_IN = ("in", "suspect", "probation")


def fates(asked: Sequence[Asked]) -> Row:
    """Count the ended requests by outcome."""
    ended = [item for item in asked if item.ended_s is not None]
    waits = sorted(item.ttft_s for item in ended if item.ttft_s is not None and item.streams)
    return {
        "requests": len(ended),
        "lost_without_first_byte": sum(item.fate == "lost" for item in ended),
        "rejected": sum(item.fate == "rejected" for item in ended),
        "broken_off": sum(item.fate == "broken_off" for item in ended),
        "ttft_p50_s": statistics.median(waits) if waits else None,
        "ttft_worst_s": waits[-1] if waits else None,
    }


async def run(
    program: LiveProgram, kinds: Sequence[str], healthy_s: float, seed: int, *, to_the_end: bool = True
) -> list[Row]:
    """Return the rows of a healthy stretch and of each fault."""
    clients = ClientHistory([program.url], program.secrets.api_key, MODEL, seed)
    watch = RotationWatch(program.url, program.state_dir / "headway.sqlite3")
    stop = asyncio.Event()
    follow, traffic = asyncio.create_task(watch.run()), asyncio.create_task(clients.run(rate, stop))
    sick = SickRun(program, clients, watch, to_the_end=to_the_end)
    await asyncio.sleep(WARM_S)
    rows = [await sick.healthy(healthy_s)] if healthy_s else []
    for turn, kind in enumerate(kinds):
        victim = kinds.index("flap") % ENGINES if kind == "flap_again" and "flap" in kinds else turn % ENGINES
        rows.append(await sick.fault(kind, victim))
        print(time.strftime("%H:%M:%S"), msgspec.json.encode(rows[-1]).decode(), flush=True)
        await asyncio.sleep(3.0)
    stop.set()
    await traffic
    follow.cancel()
    rows.append({"kind": "all", **fates(clients.asked)})
    rows[-1]["lost"] = [
        f"{item.number} after {item.sent_s:.0f} s: {item.why}" for item in clients.asked if item.fate == "lost"
    ][:20]
    return rows


def main() -> None:
    """Measure and write the rows as JSON."""
    options = command_line("sick_engines", __doc__)
    options.add_argument("--faults", default=",".join(KINDS), help="faults, in order")
    options.add_argument("--healthy-s", type=float, default=180.0, help="seconds without faults before the first one")
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    load = os.getloadavg()[0]
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        program = LiveProgram(Path(folder))
        try:
            program.start()
            program.start_engines(ENGINES, OPTIONS)
            rows = asyncio.run(run(program, asked.faults.split(","), asked.healthy_s, asked.seed))
        finally:
            program.stop()
    settings: Row = {"engines": ENGINES, "qps": QPS, "burst_qps": BURST_QPS, "period_s": PERIOD_S, "burst_s": BURST_S}
    settings |= {
        "load_average_before": round(load, 1),
        "load_average_after": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
    }
    result = Result(name="sick_engines", command="python -m bench.engines.sick_engines", settings=settings, rows=rows)
    write(result, asked.json)


if __name__ == "__main__":
    main()
