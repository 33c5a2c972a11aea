"""Fig. 12 with real processes: `python -m bench.engines.scaling --json OUT`.

Load first exceeds the capacity of four engines, then falls far below that of many. The scaling job of the running
program decides, and the process actuator starts and stops engines; clients measure the share of requests whose first
byte was on time. The paper's minutes are seconds here (DualMap A.3.3).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.evidence.store import Result, Row, write
from bench.live.client_history import Asked, ClientHistory, Shape
from bench.live.live_fleet import wait_for
from bench.live.live_program import LiveProgram
from bench.report import command_line

FEW, MANY = 4, 8
PHASES = ((3.0, 20.0), (9.0, 105.0), (2.5, 110.0))
"""(requests/s, seconds): enough work for the few engines, too much for them, then little work for many engines."""
SLO_TTFT_S = 2.0
STEP_S = 5.0
MODEL = "elastic-8b"
SHAPE = Shape(prefixes=24, prefix_signs=4000, own_signs=(22_000, 34_000), output_tokens=(4, 8))
"""About 8,000 tokens, a seventh of them shared: 0.75 s of prefill and a short answer."""
SCALING = {
    "mode": "act",
    "min_engines": FEW,
    "max_engines": MANY,
    "max_up": MANY - FEW,
    "window_s": 10.0,
    "warm_up_s": 5.0,
    "up_cool_down_s": 10.0,
    "down_cool_down_s": 15.0,
    "utilisation": 0.9,
    "forecast": False,
}
_SEED = """
from controlplane.models import Policy, Region
from controlplane.platform.actor import program
from controlplane.policies.publish import create_policy, draft, publish_version
from controlplane.fleet.topology import create_pool
me = program("scaling bench")
policy = create_policy("elastic", "Elastic", actor=me)
document = {{"schema_version": 1, "ttft_slo_s": {slo}, "automation": {{"scaling": {scaling}}}}}
publish_version(draft(policy, document, actor=me), instead_of=None, actor=me)
create_pool("elastic", "Elastic", Region.objects.get(slug="local"), "{model}", policy, actor=me,
    block_tokens=512, actuator="process", actuator_settings={{"max_engines": {many}}})
"""
_SIZES = "select count(*) from controlplane_engine where desired_state = 'ready'"
_PLANS = (
    "select (julianday(at) - 2440587.5) * 86400, reasons from controlplane_planrecord"
    " where job = 'scaling' and changes order by at"
)
"""Unix seconds and reasons of the plans that changed the fleet."""


async def run(program: LiveProgram) -> tuple[list[Asked], list[tuple[float, int]]]:
    """Return the clients' history, and the desired number of serving engines for each second."""
    clients = ClientHistory([program.url], program.secrets.api_key, MODEL, 1, shape=SHAPE)
    stop, sizes = asyncio.Event(), []
    traffic = asyncio.create_task(clients.run(_rate, stop))
    end_s = sum(seconds for _, seconds in PHASES)
    while clients.now() < end_s:
        sizes.append((clients.now(), await asyncio.to_thread(_size, program.state_dir)))
        await asyncio.sleep(1.0)
    stop.set()
    await traffic
    return clients.asked, sizes


def _rate(now_s: float) -> float:
    for qps, seconds in PHASES:
        if now_s < seconds:
            return qps
        now_s -= seconds
    return PHASES[-1][0]


def _size(state_dir: Path) -> int:
    with sqlite3.connect(f"file:{state_dir}/headway.sqlite3?mode=ro", uri=True) as database:
        return int(database.execute(_SIZES).fetchone()[0])


def on_time(asked: Sequence[Asked], first_s: float, last_s: float) -> float | None:
    """Return the share of requests sent within a span whose first byte was on time; None if there were none."""
    sent = [item for item in asked if first_s <= item.sent_s < last_s]
    good = sum(item.ttft_s is not None and item.ttft_s <= SLO_TTFT_S for item in sent)
    return good / len(sent) if sent else None


def row_of(asked: Sequence[Asked], sizes: Sequence[tuple[float, int]]) -> Row:
    """Return the figures of one run."""
    grow_s, shrink_s = PHASES[0][1], PHASES[0][1] + PHASES[1][1]
    end_s = shrink_s + PHASES[2][1]
    windows = [round(step * STEP_S, 1) for step in range(int(end_s / STEP_S))]
    course = [[first, _at(sizes, first), on_time(asked, first, first + STEP_S)] for first in windows]
    overload = [(item[0], item[2]) for item in course if grow_s <= (item[0] or 0) < shrink_s]
    late = [(at or 0.0) for at, share in overload if share is not None and share < 0.9]
    bottom = min((at for at, size in sizes if at > shrink_s and size == FEW), default=None)
    recovered_s = max(late) + STEP_S - grow_s if late else 0.0
    return {
        "requests": len(asked),
        "lost": sum(item.fate == "lost" for item in asked),
        "broken_off": sum(item.fate == "broken_off" for item in asked),
        "fewest_engines": FEW,
        "most_engines": max(size for _, size in sizes),
        "at_most_after_s": min((at - grow_s for at, size in sizes if size == MANY), default=None),
        "worst_window": min((share for _, share in overload if share is not None), default=None),
        "recovered_after_s": recovered_s,
        "on_time_after_recovery": on_time(asked, grow_s + recovered_s, shrink_s),
        "few_again_after_s": bottom - shrink_s if bottom is not None else None,
        "on_time_while_shrinking": on_time(asked, shrink_s, bottom if bottom is not None else end_s),
        "least_engines_at_the_end": sizes[-1][1],
        "course": [list(item) for item in course],
    }


def _at(sizes: Sequence[tuple[float, int]], moment_s: float) -> int:
    return next((size for at, size in reversed(sizes) if at <= moment_s), FEW)


def _plans(state_dir: Path, began_unix: float) -> list[object]:
    with sqlite3.connect(f"file:{state_dir}/headway.sqlite3?mode=ro", uri=True) as database:
        rows = database.execute(_PLANS).fetchall()
    return [
        {"at_s": round(at - began_unix, 1), "reasons": [item["text"] for item in msgspec.json.decode(reasons)]}
        for at, reasons in rows
        if at >= began_unix
    ]


def _await_the_few(state_dir: Path) -> None:
    """Wait until the scaling job has given the new pool its minimum of engines, and they have warmed up."""
    until = time.monotonic() + 90.0
    while _size(state_dir) < FEW:
        if time.monotonic() > until:
            raise TimeoutError(f"the scaling job did not start {FEW} engines within 90 s")
        time.sleep(0.5)
    time.sleep(10.0)


def main() -> None:
    """Measure and write the row as JSON."""
    options = command_line("scaling_live", __doc__)
    asked = options.parse_args()
    load = os.getloadavg()[0]
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        program = LiveProgram(Path(folder))
        try:
            program.start()
            program.shell(_SEED.format(slo=SLO_TTFT_S, scaling=SCALING, model=MODEL, many=MANY))
            _await_the_few(program.state_dir)
            wait_for(f"{program.url}/ready")
            began_unix = time.time()
            row = row_of(*asyncio.run(run(program)))
            row["plans"] = _plans(program.state_dir, began_unix)
        finally:
            program.stop()
    settings: Row = {"phases": [list(item) for item in PHASES], "slo_ttft_s": SLO_TTFT_S, "scaling": dict(SCALING)}
    settings |= {"load_average_before": round(load, 1), "load_average_after": round(os.getloadavg()[0], 1)}
    result = Result(name="scaling_live", command="python -m bench.engines.scaling", settings=settings, rows=[row])
    write(result, asked.json)
    print({name: value for name, value in row.items() if name not in ("course", "plans")})


if __name__ == "__main__":
    main()
