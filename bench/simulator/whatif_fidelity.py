"""Compare what-if with live runs: `python -m bench.simulator.whatif_fidelity --json OUT`.

Traffic runs through the real program, which records it. Then the recorded window is replayed on a fresh live fleet of
simulated engines, each a process, under each of seven policies, and the same window is given to what-if. The comparison
covers the ranking by mean TTFT of policies that differ in the live runs, and the ratios of mean TTFT: of each policy's
prediction to its measurement, and between policies. What-if reports the mean over its seeds, as the console does. Among
the engine models that mix prefill and decode, it simulates the one closest to the recorded window.

Block keys of a recording get a new salt, so hash rings differ in each run. If one hot prefix decides (`--block-tokens
64`: short keys on short blocks), dual_map's live mean moved by 15 % from recording to recording.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory

import msgspec

from bench.live.live_fleet import MODEL
from bench.live.live_program import live_program
from bench.live.live_replay import Fleet, Measured, live, policy_of
from bench.live.paired_simulation import Pair, rows_of, worst_ratio
from bench.report import Target, command_line, write_report
from controlplane.request_log.recordings.recorded_row import RecordedRow, read_recorded
from controlplane.trials.whatif.comparison import closest, own_ttft_s
from controlplane.trials.whatif.conditions import ENGINE_MODELS, Conditions
from controlplane.trials.whatif.engine_candidate import engine_candidates
from controlplane.trials.whatif.plan import BASE, WhatIfPlan
from routing.policy.policy_document import RoutingPolicy
from simulator.replay.__main__ import replay
from simulator.replay.replay_options import ReplayOptions
from simulator.runs.run_task import do_task
from simulator.workloads.trace import TraceRow

POLICIES = (
    "round_robin",
    "least_loaded",
    "least_cost",
    "dual_map",
    "consistent_hash",
    "sglang_cache_aware",
    "mooncake",
)
ENGINES = 6
APART = 0.05
"""Policies count as equal if their live mean TTFTs differ by less."""
CACHE_TOKENS = 1_000_000
"""Cache size of each engine."""
SEEDS = 3
"""Seeds that what-if averages over."""
_CHECKS, _CHECK_S = 20, 1.0
_KEEP = """
import json
from datetime import timedelta
from django.utils import timezone
from controlplane.models import Pool
from controlplane.request_log.recordings.kept_traces import recording_store
from controlplane.platform.actor import program
from controlplane.request_log.recordings.lifecycle import record_window
now = timezone.now()
made = record_window(Pool.objects.get(slug="pool"), now - timedelta(hours=1), now, actor=program("bench"))
print(json.dumps(Pool.objects.get(slug="pool").policy.live_version.routing_document))
print(recording_store().path(made.key))
"""


def recorded(rows: Sequence[TraceRow], folder: Path, block_tokens: int) -> tuple[Path, RoutingPolicy]:
    """Send the rows through the real program. Return its recording and the policy it followed."""
    with live_program(folder) as program:
        memory = ["--block-size", str(block_tokens), "--num-blocks", str(CACHE_TOKENS // block_tokens)]
        program.start_engines(ENGINES, memory, block_tokens=block_tokens)
        options = ReplayOptions(target=program.url, model=MODEL, api_key=program.secrets.api_key, chat=False)
        summary = asyncio.run(replay(rows, options))
        if summary.ok != len(rows):
            raise RuntimeError(f"{summary.ok} of {len(rows)} requests were answered: {summary.errors}")
        for _ in range(_CHECKS):
            time.sleep(_CHECK_S)
            *_, document, kept = program.shell(_KEEP).strip().splitlines()
            if len(list(read_recorded(Path(kept)))) == len(rows):
                # The state directory is deleted with the program.
                return _copied(Path(kept), folder), msgspec.json.decode(document, type=RoutingPolicy)
    raise RuntimeError("the program did not record every request")


def _copied(path: Path, folder: Path) -> Path:
    copy = folder / "window.jsonl.gz"
    copy.write_bytes(path.read_bytes())
    return copy


def asked(policy: RoutingPolicy, window: Path, rows: list[RecordedRow], models: Sequence[str]) -> WhatIfPlan:
    """Return the plan of a what-if of the policy on the window."""
    return WhatIfPlan(
        recording=window,
        rows=rows,
        conditions=Conditions(seeds=SEEDS, warmup_share=0.0),
        base=policy,
        draft=policy,
        checked_version=1,
        engines=ENGINES,
        engine_candidates=engine_candidates(policy, {}, CACHE_TOKENS, models),
    )


def engine_model(policy: RoutingPolicy, window: Path, rows: list[RecordedRow]) -> str:
    """Return the engine model closest to the window, by the method of the console's what-if."""
    plan = asked(policy, window, rows, ENGINE_MODELS)
    actual_s = own_ttft_s(rows, plan.checked_version)
    if actual_s is None:
        raise RuntimeError("the window was not routed by the program's first policy")
    trials = [do_task(plan.with_engine(number).task(BASE, 0)) for number in range(len(ENGINE_MODELS))]
    closest_model = ENGINE_MODELS[closest(trials, actual_s)]
    trials_text = ", ".join(
        f"{name} {trial.ttft_mean_s or 0:.3f} s" for name, trial in zip(ENGINE_MODELS, trials, strict=True)
    )
    print(f"recorded mean TTFT {actual_s:.3f} s; {trials_text}: {closest_model}", file=sys.stderr)
    return closest_model


def predicted(placement: str, window: Path, rows: list[RecordedRow], model: str) -> Measured:
    """Return what-if's prediction for the placement on the window."""
    plan = asked(policy_of(placement), window, rows, (model,))
    reports = [do_task(plan.task(BASE, seed)) for seed in range(SEEDS)]
    means = [report.ttft_mean_s for report in reports if report.ttft_mean_s is not None]
    if len(means) < SEEDS:
        raise RuntimeError(f"{placement}: nothing was served")
    return Measured(fmean(means), fmean(report.token_hit_rate for report in reports))


def middle(runs: Sequence[Measured]) -> Measured:
    """Return the medians of repeated runs."""
    return Measured(median(run.ttft_mean_s for run in runs), median(run.hit_rate for run in runs))


def agreeing_share(pairs: Sequence[Pair]) -> float:
    """Return the share of policy pairs with different live means that what-if ranks in the same order."""
    alike = [
        (one.live.ttft_mean_s < other.live.ttft_mean_s) == (one.simulated.ttft_mean_s < other.simulated.ttft_mean_s)
        for one, other in combinations(pairs, 2)
        if abs(one.live.ttft_mean_s / other.live.ttft_mean_s - 1) >= APART
    ]
    return sum(alike) / len(alike) if alike else 1.0


def compared(
    rows: Sequence[TraceRow], folder: Path, placements: Sequence[str], repeats: int, speed: float, block_tokens: int
) -> list[Pair]:
    """Record the rows, then replay and predict the window under each placement. Each repeat covers all placements."""
    window, policy = recorded(rows, folder, block_tokens)
    kept = list(read_recorded(window))
    fleet = Fleet(engines=ENGINES, speed=speed, block_tokens=block_tokens, num_blocks=CACHE_TOKENS // block_tokens)
    measured: dict[str, list[Measured]] = {placement: [] for placement in placements}
    for _ in range(repeats):
        for placement in placements:
            run = asyncio.run(live(placement, kept, fleet))
            measured[placement].append(run)
            print(f"{placement}: live mean TTFT {run.ttft_mean_s:.3f} s, hit rate {run.hit_rate:.3f}", file=sys.stderr)
    model = engine_model(policy, window, kept)
    return [
        Pair(placement, middle(measured[placement]), predicted(placement, window, kept, model))
        for placement in placements
    ]


def figures_of(pairs: Sequence[Pair]) -> dict[str, float]:
    """Return the report's figures."""
    figures: dict[str, float] = {}
    for pair in pairs:
        for where, what in (("live", pair.live), ("predicted", pair.simulated)):
            figures[f"{pair.placement}_{where}_ttft_mean_s"] = round(what.ttft_mean_s, 4)
            figures[f"{pair.placement}_{where}_hit_rate"] = round(what.hit_rate, 4)
    figures["worst_ratio_error"] = round(
        max(abs(item.simulated.ttft_mean_s / item.live.ttft_mean_s - 1) for item in pairs), 4
    )
    figures["worst_ratio_error_between_policies"] = round(worst_ratio(pairs), 4)
    figures["worst_hit_error"] = round(max(abs(item.live.hit_rate - item.simulated.hit_rate) for item in pairs), 4)
    figures["ranked_alike_share"] = round(agreeing_share(pairs), 4)
    return figures


def targets_of(figures: Mapping[str, float]) -> dict[str, Target]:
    """Return the targets."""
    return {
        "worst_ratio_error": Target(value=figures["worst_ratio_error"], op="<=", target=0.15),
        "worst_ratio_error_between_policies": Target(
            value=figures["worst_ratio_error_between_policies"], op="<=", target=0.15
        ),
        "ranked_alike_share": Target(value=figures["ranked_alike_share"], op=">=", target=1.0),
    }


def main() -> None:
    """Compare and write the report."""
    parser = command_line("whatif_fidelity", __doc__)
    parser.add_argument("--rows", type=int, default=480)
    parser.add_argument("--qps", type=float, default=4.0)
    parser.add_argument("--speed", type=float, default=1.0, help="live seconds per trace second; below 1: less load")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--max-input", type=int, default=16_384)
    parser.add_argument("--max-output", type=int, default=200)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--block-tokens", type=int, default=512, help="block size of recorded and live pools")
    parser.add_argument("--placements", nargs="+", default=POLICIES)
    options = parser.parse_args()
    rows = rows_of(options.rows, options.qps, options.max_input, options.max_output, options.seed)
    with TemporaryDirectory() as folder:
        pairs = compared(rows, Path(folder), options.placements, options.repeats, options.speed, options.block_tokens)
    figures = figures_of(pairs)
    write_report("whatif_fidelity", figures, targets_of(figures), options.json)


if __name__ == "__main__":
    main()
