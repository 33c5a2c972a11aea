"""How console and jobs affect requests: `python -m bench.installation.isolation --json OUT`.

Decisions and streamed answers are requested in closed loops, in pairs of rounds: one alone, and one with 20 page loads
per second and running what-ifs. Background jobs run in both. The figures are medians over the pairs of the ratio of the
busy to the quiet round. They are reported next to those of commit BEFORE, the last on which gateway, web, and jobs
could share one process, if this checkout contains it.

Client, engines, and the page reader share the machine's cores with the program, unlike in a real installation, where
pages and what-ifs would not delay them. So client and engines get precedence (autogroup, sched(7); requires root), and
the reader a lower priority. Without precedence, most of the added time to first byte is the engine's and the client's
own wait for a core (ADR 0044).
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import msgspec
import uvloop

from bench.live.live_program import ROOT, LiveProgram, live_program
from bench.report import Target, command_line, write_report
from simulator.workloads.trace import TraceRow

BEFORE = "6d4e9fc"
MODEL = "loopback-8b"
PAGES_PER_S = 20.0
ROWS, ROW_MS = 10_000, 40.0
"""Size of the trace for what-ifs, and the gap between its rows in milliseconds."""
WHATIFS = 4
"""What-ifs started at once, so that at least one runs during the whole round."""
DECISION_PAUSE_S, STREAM_PAUSE_S = 0.01, 0.05
SETTLE_S = 2.0
PRECEDENCE = -10
"""Nice value of the session of client and engines. The program has a separate session."""

_UPLOAD = """
from controlplane.models import Pool
from controlplane.platform.actor import program
from controlplane.request_log.recordings.lifecycle import upload_recording
with open({path!r}, "rb") as file:
    upload_recording(Pool.objects.get(slug="pool"), file, actor=program("bench"), name="bench")
"""
_ASK = """
from controlplane.models import Recording
from controlplane.platform.actor import program
from controlplane.trials.whatif.conditions import Conditions
from controlplane.trials.whatif.lifecycle import start_whatif
recording = Recording.objects.get()
for _ in range({count}):
    start_whatif(
        recording, recording.pool.policy.live_version, None, Conditions(seeds=10, engine_model="chunked"),
        actor=program("bench"),
    )
"""
# Runs at commit BEFORE too; a job that has just ended by itself was running.
_CANCEL = """
import time
from contextlib import suppress
from controlplane.models import JobRun
from controlplane.platform.actor import program
from controlplane.job_runs.control import JobControlError, cancel
active = JobRun.objects.filter(job="whatif", state="active")
found = list(active)
for run in found:
    with suppress(JobControlError):
        cancel(run, actor=program("bench"))
print(len(found))
until = time.monotonic() + 60
while active.exists() and time.monotonic() < until:
    time.sleep(0.2)
"""
# The name at commit BEFORE.
_ONE_PROCESS = """
import dataclasses, json
from bench import isolation
isolation._CANCEL = {cancel!r}
measured = isolation.measured({count}, {seconds}, separate=False)
print(json.dumps([dataclasses.astuple(each) for each in measured]))
"""


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of decisions and of first bytes."""

    decisions: list[float]
    first_bytes: list[float]


@dataclass(frozen=True, slots=True)
class Pair:
    """Ratios of a busy round to its quiet round."""

    decision_p50: float
    decision_p99: float
    first_byte_p99: float


async def one_round(program: LiveProgram, seconds: float) -> Round:
    """Request decisions and streams for this many seconds."""
    measured_s = Round([], [])
    headers = {"Authorization": f"Bearer {program.secrets.api_key}"}
    until = time.monotonic() + seconds
    async with aiohttp.ClientSession(headers=headers) as client, asyncio.TaskGroup() as all_:
        all_.create_task(_decide(client, program.url, until, measured_s.decisions))
        all_.create_task(_stream(client, program.url, until, measured_s.first_bytes))
    return measured_s


async def _decide(client: aiohttp.ClientSession, url: str, until: float, took: list[float]) -> None:
    number = 0
    while time.monotonic() < until:
        number += 1
        body = {"model": MODEL, "token_ids": [number] * 256, "wait": False}
        begin = time.perf_counter()
        async with client.post(f"{url}/api/v1/route", json=body) as answer:
            decided = await answer.json()
        took.append(time.perf_counter() - begin)
        async with client.post(f"{url}/api/v1/requests/{decided['decision_id']}/complete", json={}) as answer:
            await answer.read()
        await asyncio.sleep(DECISION_PAUSE_S)


async def _stream(client: aiohttp.ClientSession, url: str, until: float, took: list[float]) -> None:
    number = 0
    while time.monotonic() < until:
        number += 1
        messages = [{"role": "user", "content": f"{number} " * 50}]
        body = {"model": MODEL, "messages": messages, "stream": True, "max_tokens": 4}
        begin = time.perf_counter()
        async with client.post(f"{url}/v1/chat/completions", json=body) as answer:
            answer.raise_for_status()
            await answer.content.readany()
            took.append(time.perf_counter() - begin)
            await answer.read()
        await asyncio.sleep(STREAM_PAUSE_S)


@contextmanager
def precedence() -> Iterator[None]:
    """Give this session, which includes client and engines, precedence during the context, if permitted."""
    group = Path("/proc/self/autogroup")
    try:
        before = group.read_text().split()[-1]
        group.write_text(str(PRECEDENCE))
    except OSError as error:
        print(f"Client and engines wait for cores as all others do: {error}.", file=sys.stderr)
        yield
        return
    try:
        yield
    finally:
        group.write_text(before)


@contextmanager
def other_work(program: LiveProgram) -> Iterator[None]:
    """Read pages and simulate what-ifs during the context. Raises RuntimeError if the what-ifs ended early."""
    command = [
        sys.executable,
        "-m",
        "bench.installation.page_reader",
        program.url,
        program.secrets.admin_password,
        str(PAGES_PER_S),
    ]
    program.shell(_ASK.format(count=WHATIFS))
    reader = subprocess.Popen(["nice", "-n", "10", *command], stdout=subprocess.PIPE)
    try:
        if reader.stdout is None or reader.stdout.readline() != b"reading\n":
            raise RuntimeError("the page reader did not start")
        time.sleep(SETTLE_S)
        yield
    finally:
        ended = reader.poll()
        reader.kill()
        reader.wait()
        under_way = int(program.shell(_CANCEL).strip().splitlines()[-1])
    if ended is not None or not under_way:
        raise RuntimeError("the other work ended before the round did")


def pair(program: LiveProgram, seconds: float, *, quiet_first: bool) -> Pair:
    """Measure one pair of rounds in alternating order, so that slow changes favor neither."""
    rounds: dict[bool, Round] = {}
    for quiet in (quiet_first, not quiet_first):
        time.sleep(SETTLE_S)
        if quiet:
            rounds[quiet] = _run(program, seconds)
        else:
            with other_work(program):
                rounds[quiet] = _run(program, seconds)
    quiet_round, busy = rounds[True], rounds[False]
    return Pair(
        statistics.median(busy.decisions) / statistics.median(quiet_round.decisions),
        _p99(busy.decisions) / _p99(quiet_round.decisions),
        _p99(busy.first_bytes) / _p99(quiet_round.first_bytes),
    )


def _run(program: LiveProgram, seconds: float) -> Round:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(one_round(program, seconds))


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def measured(count: int, seconds: float) -> list[Pair]:
    """Return the ratios of this many pairs in a fresh installation, after a warm-up round."""
    with TemporaryDirectory() as name, live_program(Path(name), engines=True) as program:
        trace = Path(name) / "trace.jsonl"
        trace.write_bytes(_trace())
        program.shell(_UPLOAD.format(path=str(trace)))
        _run(program, min(seconds, 5.0))
        return [pair(program, seconds, quiet_first=number % 2 == 0) for number in range(count)]


def measured_before(count: int, seconds: float) -> list[Pair]:
    """Return the same for commit BEFORE in one process, empty if this checkout lacks it."""
    with TemporaryDirectory() as name:
        archive = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True, check=False)
        if archive.returncode:
            print(f"Without commit {BEFORE} there is nothing to compare with.", file=sys.stderr)
            return []
        subprocess.run(["tar", "-x", "-C", name], input=archive.stdout, check=True)
        program = _ONE_PROCESS.format(cancel=_CANCEL, count=count, seconds=seconds)
        done = subprocess.run([sys.executable, "-c", program], cwd=name, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"Commit {BEFORE} could not be measured.", file=sys.stderr)
            return []
        return [Pair(*item) for item in msgspec.json.decode(done.stdout.splitlines()[-1])]


def _trace() -> bytes:
    """Return a trace whose prompts share the first of their four blocks with a fiftieth of the others."""
    rows = (
        TraceRow(number * ROW_MS, 2048, 50, (number % 50, *(10_000 + 3 * number + item for item in range(3))))
        for number in range(ROWS)
    )
    return b"\n".join(map(msgspec.json.encode, rows)) + b"\n"


def _medians(pairs: list[Pair]) -> dict[str, float]:
    if not pairs:
        return {}
    return {
        "decision_p50_ratio": statistics.median(item.decision_p50 for item in pairs),
        "decision_p99_ratio": statistics.median(item.decision_p99 for item in pairs),
        "first_byte_p99_ratio": statistics.median(item.first_byte_p99 for item in pairs),
    }


def main() -> None:
    """Measure and write the report."""
    parser = command_line("isolation", __doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15.0, help="seconds per round")
    arguments = parser.parse_args()
    with precedence():
        now = _medians(measured(arguments.pairs, arguments.seconds))
        before = _medians(measured_before(arguments.pairs, arguments.seconds))
    figures = {"pairs": float(arguments.pairs), **now}
    figures |= {f"one_process_{key.removeprefix('decision_')}": value for key, value in before.items()}
    bounds = {"decision_p50_ratio": 1.2, "decision_p99_ratio": 2.0, "first_byte_p99_ratio": 2.0}
    targets = {key: Target(value=figures[key], op="<=", target=bound) for key, bound in bounds.items()}
    write_report("isolation", figures, targets, arguments.json)


if __name__ == "__main__":
    main()
