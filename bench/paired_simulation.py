"""Is the simulator right about the live fleet? `python -m bench.paired_simulation --json OUT`.

The same rows go through a real gateway and simulated engines, each a process in scaled time, and
through the simulator, once under each placement. Compared are the ranking by mean TTFT, the ratios of
mean TTFT to the first placement's, and the hit rates as the engines report them.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.live_fleet import API_KEY, MODEL, live_fleet
from bench.report import Target, write_report
from routing.policy.policy_document import RoutingPolicy, Stage
from simulator.replay.__main__ import replay
from simulator.replay.replay_options import ReplayOptions
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import RunSpec, run
from simulator.workloads.conversation_like import WorkloadShape, generate
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow

PLACEMENTS = ("round_robin", "least_loaded", "least_cost")
ENGINES = 8
_SLO_S, _LOOK_AHEAD_S = 5.0, 0.05


class Measured(msgspec.Struct, frozen=True):
    """One run: mean seconds to the first token in trace time, and the share of prompt tokens that hit."""

    ttft_mean_s: float
    hit_rate: float


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


async def live(placement: str, rows: Sequence[TraceRow], speed: float) -> Measured:
    """Replay the rows through processes, `speed` times faster than the trace; raises RuntimeError where one fails."""
    policy = RoutingPolicy(
        placement=Stage(name=placement),
        order=Stage(name="fifo"),
        ttft_slo_s=_SLO_S / speed,
        grant_lookahead_s=_LOOK_AHEAD_S / speed,
    )
    with (
        TemporaryDirectory() as folder,
        live_fleet(Path(folder), policy, engines=ENGINES, time_scale=speed) as fleet,
    ):
        summary = await replay(
            rows, ReplayOptions(target=fleet.url, model=MODEL, api_key=API_KEY, speed=speed, chat=False)
        )
    if summary.ok != len(rows) or summary.ttft_mean_s is None or summary.cached_share is None:
        raise RuntimeError(f"{placement}: {summary.ok} of {len(rows)} requests were answered: {summary.errors}")
    return Measured(summary.ttft_mean_s * speed, summary.cached_share)


def simulated(placement: str, rows: Sequence[TraceRow]) -> Measured:
    """Run the rows through the simulator with the same engines and policy, in trace time."""
    policy = RoutingPolicy(
        placement=Stage(name=placement),
        order=Stage(name="fifo"),
        ttft_slo_s=_SLO_S,
        grant_lookahead_s=_LOOK_AHEAD_S,
    )
    spec = RunSpec(policy=policy, engines=ENGINES, engine_model="colocated")
    workload = Workload(rows)
    report = report_of(spec, workload, run(spec, workload), 0.0)
    if report.ttft_mean_s is None:
        raise RuntimeError(f"{placement}: nothing was served")
    return Measured(report.ttft_mean_s, report.token_hit_rate)


async def pairs(rows: Sequence[TraceRow], placements: Sequence[str], speed: float) -> list[Pair]:
    """Run the rows under each placement, live and simulated."""
    return [Pair(each, await live(each, rows, speed), simulated(each, rows)) for each in placements]


MOST_APART = 0.15
"""By so much the simulated ratio of two placements' mean TTFTs may differ from the live one."""


def worst_ratio(measured: Sequence[Pair]) -> float:
    """Return how far the simulated ratio of two placements' mean TTFTs is from the live one, at worst (0.1: 10 %)."""
    worst = 0.0
    for one in measured:
        for other in measured:
            truth = one.live.ttft_mean_s / other.live.ttft_mean_s
            told = one.simulated.ttft_mean_s / other.simulated.ttft_mean_s
            worst = max(worst, abs(told / truth - 1))
    return worst


def ranking(measured: Sequence[Pair], *, by_simulation: bool) -> list[str]:
    """Return the placements from the least mean TTFT to the greatest."""

    def ttft(pair: Pair) -> float:
        return (pair.simulated if by_simulation else pair.live).ttft_mean_s

    return [pair.placement for pair in sorted(measured, key=ttft)]


def main() -> None:
    """Run the pairs and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=240)
    parser.add_argument("--qps", type=float, default=7.0)
    parser.add_argument("--speed", type=float, default=2.0)
    parser.add_argument("--max-input", type=int, default=16_384)
    parser.add_argument("--max-output", type=int, default=24)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--placements", nargs="+", default=PLACEMENTS)
    parser.add_argument("--json", type=Path, default=Path("var/bench/paired_simulation.json"), metavar="OUT")
    options = parser.parse_args()
    rows = rows_of(options.rows, options.qps, options.max_input, options.max_output, options.seed)
    measured = asyncio.run(pairs(rows, options.placements, options.speed))
    figures: dict[str, float] = {}
    for pair in measured:
        for where, what in (("live", pair.live), ("simulated", pair.simulated)):
            figures[f"{pair.placement}_{where}_ttft_mean_s"] = round(what.ttft_mean_s, 4)
            figures[f"{pair.placement}_{where}_hit_rate"] = round(what.hit_rate, 4)
    figures["worst_ratio_error"] = round(worst_ratio(measured), 4)
    figures["worst_hit_error"] = round(max(abs(each.live.hit_rate - each.simulated.hit_rate) for each in measured), 4)
    same = ranking(measured, by_simulation=True) == ranking(measured, by_simulation=False)
    figures["same_ranking"] = float(same)
    targets = {
        "worst_ratio_error": Target(value=figures["worst_ratio_error"], op="<=", target=0.15),
        "worst_hit_error": Target(value=figures["worst_hit_error"], op="<=", target=0.02),
        "same_ranking": Target(value=figures["same_ranking"], op=">=", target=1.0),
    }
    write_report("paired_simulation", figures, targets, options.json)


if __name__ == "__main__":
    main()
