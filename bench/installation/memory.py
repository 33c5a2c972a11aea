"""The demo's memory over hours: `python -m bench.installation.memory --json OUT --minutes M [--tokens T --qps Q]`.

Runs `manage.py up --demo` with prompts of equal length and short answers, and samples the resident memory of its
processes. By default, prompts are short and many, so that two cores suffice for them and eight simulated engines:
memory that grows with the number of requests grows. `--tokens 8192 --qps 9` shows memory that grows with the length of
prompts. The slope is the least-squares line through the samples after the warm-up.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.request import urlopen

import msgspec

from bench.installation.idle import demo_ports, name_of
from bench.live.live_fleet import program_pids, resident_bytes
from bench.live.live_program import LiveProgram
from bench.report import Target, command_line, write_report
from simulator.workloads.conversation_like import WorkloadShape, generate
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow, write_trace

QPS = 28.0
TOKENS, MAX_OUTPUT = 1024, 8
PASS_S = 1200.0
"""Seconds after which the replay starts again with other sessions."""
WARM_SHARE = 0.25
MIN_WARM_MIN = 20.0
"""After this time, tables with a fixed number of recent requests are full."""
SAMPLE_S = 10.0
SLOPE_MB_PER_MIN = 0.1
GATEWAY_MB = 200.0
MB = 1e6


class MemorySample(NamedTuple):
    """Resident memory of all processes, and of the gateway."""

    at_min: float
    all_mb: float
    gateway_mb: float


def rows_of(qps: float, tokens: int) -> list[TraceRow]:
    """Return one pass of requests like the conversation trace's, all with prompts of this length and short answers."""
    rows = generate(int(qps * PASS_S), 1, WorkloadShape(qps=qps))
    return [
        msgspec.structs.replace(
            row,
            input_length=tokens,
            output_length=min(row.output_length, MAX_OUTPUT),
            hash_ids=row.hash_ids[: -(-tokens // BLOCK_TOKENS)],
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


def measure(minutes: float, rows: Sequence[TraceRow]) -> tuple[list[MemorySample], float]:
    """Return samples of the demo's memory, and the number of ended requests."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        trace = Path(folder) / "trace.jsonl.gz"
        write_trace(trace, rows)
        program = LiveProgram(Path(folder), demo_ports(), ("--demo", "--trace", str(trace)))
        try:
            program.start()
            begun_s, samples = time.monotonic(), list[MemorySample]()
            while (at_min := (time.monotonic() - begun_s) / 60) < minutes:
                samples.append(sampled(program.pid, at_min))
                time.sleep(SAMPLE_S)
            return samples, requests_ended(program.url)
        finally:
            program.stop()


def sampled(pid: int, at_min: float) -> MemorySample:
    """Return the memory of the program with this supervisor."""
    sizes = [(name_of(Path(f"/proc/{part}/cmdline").read_text()), resident_bytes(part)) for part in program_pids(pid)]
    gateway = sum(size for name, size in sizes if name == "gateway")
    return MemorySample(at_min, sum(size for _, size in sizes) / MB, gateway / MB)


def main() -> int:
    """Run, report, and return 0 if slope and memory are within the limits."""
    parser = command_line("memory", __doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="length of each prompt")
    parser.add_argument("--qps", type=float, default=QPS, help="mean requests per second")
    options = parser.parse_args()
    samples, requests = measure(options.minutes, rows_of(options.qps, options.tokens))
    warm = [sample for sample in samples if sample.at_min >= warm_min(options.minutes)]
    every = samples[:: max(1, len(samples) // 24)]
    figures = {
        "minutes": options.minutes,
        "prompt_tokens": float(options.tokens),
        "warm_up_minutes": warm_min(options.minutes),
        "requests_per_s": requests / (60 * options.minutes),
        "first_mb": samples[0].all_mb,
        "warm_mb": warm[0].all_mb,
        "last_mb": samples[-1].all_mb,
        "peak_mb": max(sample.all_mb for sample in samples),
        "load_average": os.getloadavg()[0],
        **{f"mb_at_{sample.at_min:.0f}_min": sample.all_mb for sample in every},
        **{f"gateway_mb_at_{sample.at_min:.0f}_min": sample.gateway_mb for sample in every},
    }
    targets = {
        "slope_mb_per_min": Target(
            value=slope([(sample.at_min, sample.all_mb) for sample in warm]), op="<=", target=SLOPE_MB_PER_MIN
        ),
        "gateway_peak_mb": Target(value=max(sample.gateway_mb for sample in samples), op="<=", target=GATEWAY_MB),
    }
    return 0 if write_report("memory", figures, targets, options.json) else 1


if __name__ == "__main__":
    sys.exit(main())
