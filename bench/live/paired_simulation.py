"""Compare the simulator with the live fleet: `python -m bench.evidence --measure paired_simulation`.

The same rows run through a real gateway and simulated engines, each a process in scaled time, and through the
simulator, once under each placement. The comparison covers the ranking by mean TTFT, the ratios of mean TTFT to the
first placement's, and the hit rates reported by the engines.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.live.live_replay import Fleet, Measured, live, policy_of
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import RunSpec, run
from simulator.workloads.conversation_like import WorkloadShape, generate
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow

PLACEMENTS = ("round_robin", "least_loaded", "least_cost")
ENGINES = 8


class Pair(msgspec.Struct, frozen=True):
    """The same rows under one placement, live and simulated."""

    placement: str
    live: Measured
    simulated: Measured


def rows_of(count: int, qps: float, max_input: int, max_output: int, seed: int) -> list[TraceRow]:
    """Return generated conversations at a rate, with short answers and capped prompts."""
    shape = WorkloadShape(qps=qps, follow_up_share=0.6, mean_turns=3.0, gap_median_s=8.0)
    return [
        msgspec.structs.replace(
            row,
            input_length=min(row.input_length, max_input),
            hash_ids=row.hash_ids[: -(-min(row.input_length, max_input) // 512)],
            output_length=min(row.output_length, max_output),
        )
        for row in generate(count, seed, shape)
    ]


def simulated(placement: str, rows: Sequence[TraceRow]) -> Measured:
    """Run the rows through the simulator with the same engines and policy, in trace time."""
    spec = RunSpec(policy=policy_of(placement), engines=ENGINES, engine_model="colocated")
    workload = Workload(rows)
    report = report_of(spec, workload, run(spec, workload), 0.0)
    if report.ttft_mean_s is None:
        raise RuntimeError(f"{placement}: nothing was served")
    return Measured(report.ttft_mean_s, report.token_hit_rate)


async def pairs(rows: Sequence[TraceRow], placements: Sequence[str], speed: float) -> list[Pair]:
    """Run the rows under each placement, live and simulated."""
    return [
        Pair(placement, await live(placement, rows, Fleet(engines=ENGINES, speed=speed)), simulated(placement, rows))
        for placement in placements
    ]


MOST_APART = 0.15
"""Maximum difference between the simulated and the live ratio of two placements' mean TTFTs."""


def worst_ratio(measured: Sequence[Pair]) -> float:
    """Return the largest error of the simulated ratios of two placements' mean TTFTs (0.1: 10 %)."""
    worst = 0.0
    for one in measured:
        for other in measured:
            truth = one.live.ttft_mean_s / other.live.ttft_mean_s
            simulated_ratio = one.simulated.ttft_mean_s / other.simulated.ttft_mean_s
            worst = max(worst, abs(simulated_ratio / truth - 1))
    return worst


def ranking(measured: Sequence[Pair], *, by_simulation: bool) -> list[str]:
    """Return the placements by mean TTFT, lowest first."""

    def ttft(pair: Pair) -> float:
        return (pair.simulated if by_simulation else pair.live).ttft_mean_s

    return [pair.placement for pair in sorted(measured, key=ttft)]
