"""The demo's memory over hours: `python -m bench.installation.memory --json OUT --minutes M`.

Runs `manage.py up --demo` at 28 requests per second and samples the resident memory of its processes. Requests are
short, so that two cores suffice for them and eight simulated engines; memory that grows with the number of requests
still grows. The slope is the least-squares line through the samples after the warm-up.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import msgspec

from bench.live.live_fleet import program_pids, resident_bytes, wait_for
from bench.live.loopback_ports import free_ports
from bench.report import Target, command_line, write_report
from simulator.workloads.conversation_like import WorkloadShape, generate
from simulator.workloads.trace import TraceRow, write_trace

QPS = 28.0
PASS_S = 1200.0
"""Seconds after which the replay starts again with other sessions."""
MAX_INPUT, MAX_OUTPUT = 1024, 8
WARM_SHARE = 0.25
MIN_WARM_MIN = 20.0
"""After this time, tables with a fixed number of recent requests are full."""
SAMPLE_S = 10.0
SLOPE_MB_PER_MIN = 0.1
MB = 1e6


def short_rows() -> list[TraceRow]:
    """Return one pass of requests like the conversation trace's, with shortened prompts and answers."""
    rows = generate(int(QPS * PASS_S), 1, WorkloadShape(qps=QPS))
    return [
        msgspec.structs.replace(
            row,
            input_length=min(row.input_length, MAX_INPUT),
            output_length=min(row.output_length, MAX_OUTPUT),
            hash_ids=row.hash_ids[: MAX_INPUT // 512],
        )
        for row in rows
    ]


def requests_ended(url: str) -> float:
    """Return how many requests the gateway has ended so far."""
    with urlopen(f"{url}/metrics", timeout=30) as answer:  # noqa: S310 - our own server on loopback
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("headway_requests_total{"))


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """Return the least-squares slope of (minute, MB) in MB per minute."""
    return statistics.linear_regression([at for at, _ in samples], [mb for _, mb in samples]).slope


def warm_min(minutes: float) -> float:
    """Return the warm-up time of a run in minutes: at most half of it."""
    return min(max(MIN_WARM_MIN, WARM_SHARE * minutes), minutes / 2)


def measure(minutes: float) -> tuple[list[tuple[float, float]], float]:
    """Return (minute, resident MB) samples of the demo's processes, and the number of ended requests."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        directory = Path(folder)
        trace = directory / "trace.jsonl.gz"
        write_trace(trace, short_rows())
        port, first = free_ports(1)[0], 22_000 + os.getpid() % 90 * 100
        command = [sys.executable, "manage.py", "up", "--demo", "--port", str(port), "--trace", str(trace)]
        environment = {
            **os.environ,
            "HEADWAY_STATE_DIR": str(directory / "state"),
            "HEADWAY_DEMO_PORTS_FROM": str(first),
        }
        root = Path(__file__).resolve().parents[2]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log)
            try:
                return _sampled(process, f"http://127.0.0.1:{port}", minutes)
            finally:
                process.terminate()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _sampled(process: subprocess.Popen[bytes], url: str, minutes: float) -> tuple[list[tuple[float, float]], float]:
    wait_for(f"{url}/ready")
    begun_s = time.monotonic()
    samples = []
    while (at_min := (time.monotonic() - begun_s) / 60) < minutes:
        samples.append((at_min, sum(map(resident_bytes, program_pids(process.pid))) / MB))
        time.sleep(SAMPLE_S)
    return samples, requests_ended(url)


def main() -> int:
    """Run, report, and return 0 if the slope is within the limit."""
    parser = command_line("memory", __doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    options = parser.parse_args()
    samples, requests = measure(options.minutes)
    warm = [sample for sample in samples if sample[0] >= warm_min(options.minutes)]
    every = [samples[index] for index in range(0, len(samples), max(1, len(samples) // 24))]
    figures = {
        "minutes": options.minutes,
        "warm_up_minutes": warm_min(options.minutes),
        "requests_per_s": requests / (60 * options.minutes),
        "first_mb": samples[0][1],
        "warm_mb": warm[0][1],
        "last_mb": samples[-1][1],
        "peak_mb": max(mb for _, mb in samples),
        "load_average": os.getloadavg()[0],
        **{f"mb_at_{at:.0f}_min": mb for at, mb in every},
    }
    targets = {"slope_mb_per_min": Target(value=slope(warm), op="<=", target=SLOPE_MB_PER_MIN)}
    return 0 if write_report("memory", figures, targets, options.json) else 1


if __name__ == "__main__":
    sys.exit(main())
