"""Run the second simulator, and search for the largest rate that a rule sustains in it."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import msgspec

from bench.evidence.second_simulator.orders import take
from bench.evidence.second_simulator.placements import Reading, placement
from bench.evidence.second_simulator.station import BLOCK_TOKENS, SLO_S, Job, Station
from simulator.runs.goodput import SHARE, largest
from simulator.workloads.trace import TraceRow


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One rule on one fleet, under one reading."""

    placement: str
    order: str = "fifo"
    engines: int = 8
    max_input: int = 20_480
    warmup: int = 500
    reading: Reading = Reading()


class OnTime(msgspec.Struct, frozen=True):
    """Shares of requests and of prompt tokens after the warm-up whose first token was on time."""

    requests: float
    tokens: float


def run(asked: Asked, rows: Sequence[TraceRow], qps: float) -> OnTime:
    """Run the rows at a mean rate."""
    stations = [Station() for _ in range(asked.engines)]
    choose = placement(asked.placement, asked.reading, asked.engines)
    jobs = _jobs(asked, rows, qps)
    ends: list[tuple[float, int]] = []
    at = 0
    while at < len(jobs) or ends:
        # An end goes before an arrival at the same time, so that the arrival sees its blocks.
        if ends and (at == len(jobs) or ends[0][0] <= jobs[at].arrived_s):
            now, engine = heappop(ends)
            stations[engine].finish()
        else:
            now = jobs[at].arrived_s
            engine = choose(jobs[at], stations, now)
            stations[engine].bind(jobs[at])
            at += 1
        station = stations[engine]
        job = take(asked.order, station, now, asked.reading) if station.running is None else None
        if job is not None:
            station.start(job, now)
            heappush(ends, (station.free_s, engine))
    return _on_time(jobs[asked.warmup :])


def goodput(asked: Asked, rows: Sequence[TraceRow], guess_qps: float) -> tuple[float, float]:
    """Return the largest rates, to a tenth, with 90 % on time: of the requests, and of the prompt tokens too."""
    known: dict[int, OnTime] = {}

    def at(tenths: int) -> OnTime:
        if tenths not in known:
            known[tenths] = run(asked, rows, tenths / 10)
        return known[tenths]

    by_requests = largest(lambda tenths: at(tenths).requests >= SHARE, round(10 * guess_qps))
    by_both = largest(lambda tenths: min(at(tenths).requests, at(tenths).tokens) >= SHARE, max(1, by_requests))
    return by_requests / 10, by_both / 10


def _jobs(asked: Asked, rows: Sequence[TraceRow], qps: float) -> list[Job]:
    first, last = rows[0].timestamp, rows[-1].timestamp
    scale = len(rows) / qps / (last - first)
    jobs = []
    for number, row in enumerate(rows):
        tokens = min(row.input_length, asked.max_input)
        blocks = tuple(row.hash_ids[: -(-tokens // BLOCK_TOKENS)])
        jobs.append(Job(number, (row.timestamp - first) * scale, tokens, blocks))
    return jobs


def _on_time(jobs: Sequence[Job]) -> OnTime:
    good = [job for job in jobs if job.ttft_s <= SLO_S]
    return OnTime(len(good) / len(jobs), sum(job.tokens for job in good) / sum(job.tokens for job in jobs))
