"""The value of loads and orders of KV blocks on a live fleet: `python -m bench.kv.live --json OUT`.

Gateways, engines and node managers are processes; payloads and links are scaled as in the demo (100 Gbit/s, 7B model).

- `mooncake`: windows of questions on documents, more than the engines' caches hold. Each window is sent to a fleet
  with node managers, to the same fleet under a gateway without nodes, and to what-if's simulation of both.
  Definition of the verdict: the median over the windows of live over predicted mean TTFT is within 15 %, and that of
  the mean TTFT with loads over the one without is below 1.
- `replicas`: a prefix that only the other node has is requested again and again, along with prompts that push it out
  of the engines. Definition: the median over pairs of windows of its p90 TTFT with replication over without is below 1.
- `prefetch`: documents that only the other node has, requested faster than they are served, so that requests queue.
  Definition: the tokens that prefetch reports as saved are no more than those that the engines' own node sent to them
  (none of which it had but by prefetch), and no fewer than 90 % of them.

Ratios are of consecutive windows on one fleet; caches are emptied between them. A slow `--speed` makes a busy machine
matter less, but below about 0.5 a gateway sometimes takes engines with long prefills for stalled ones.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import fmean, median
from tempfile import TemporaryDirectory

import msgspec

from bench.live.kv_fleet import BLOCK_TOKENS, KvFleet, KvFleetShape, kv_fleet
from bench.live.live_fleet import API_KEY, MODEL
from bench.live.live_replay import policy_of
from bench.report import Target, command_line, write_report
from controlplane.kv_nodes.simulated_scale import BYTES_PER_TOKEN
from planning.kv_moves.kv_move import PREFETCH, REPLICATE
from routing.policy.policy_document import RoutingPolicy
from simulator.engine_models.engine_profile import EngineProfile
from simulator.kv_nodes.kv_nodes_spec import KvNodesSpec
from simulator.replay.__main__ import replay
from simulator.replay.replay_options import ReplayOptions
from simulator.replay.replay_summary import ReplaySummary
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import RunSpec, run
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow

PARTS = ("mooncake", "replicas", "prefetch")
NEAR = 0.15
LEAST_ANSWERED = 0.95
"""Minimum answered share: on a busy machine a gateway sometimes rejects a request that can no longer meet its
objective.
"""
_HOT_BLOCKS = 24
_LIMIT_S = 60.0


class Window(msgspec.Struct, frozen=True):
    """Mean times to first token of the same requests, in seconds."""

    live_s: float
    live_off_s: float
    predicted_s: float
    predicted_off_s: float


def documents(seed: int, *, requests: int, documents: int, blocks: int, gap_s: float) -> list[TraceRow]:
    """Return questions about documents of varying popularity. No two seeds share a document."""
    random, ranks = Random(seed), range(documents)
    asked = random.choices(ranks, [1 / (rank + 1) for rank in ranks], k=requests)
    rows, at_s = [], 0.0
    for number, document in enumerate(asked):
        at_s += random.expovariate(1 / gap_s)
        first = 1_000_000 * seed + 1000 * document
        own = 1_000_000 * seed + 500_000 + number
        rows.append(_row(at_s, (*range(first, first + blocks), own)))
    return rows


def _row(at_s: float, blocks: tuple[int, ...], output: int = 8) -> TraceRow:
    tokens = BLOCK_TOKENS * len(blocks)
    return TraceRow(timestamp=round(1000 * at_s), input_length=tokens, output_length=output, hash_ids=blocks)


def sent(fleet: KvFleet, *rows: Sequence[TraceRow]) -> list[ReplaySummary]:
    """Send several lists of rows concurrently. Raises RuntimeError if at least one in twenty is not answered."""
    speed = fleet.shape.speed
    options = ReplayOptions(target=fleet.url, model=MODEL, api_key=API_KEY, chat=False, speed=speed)

    async def together() -> list[ReplaySummary]:
        return list(await asyncio.gather(*(replay(row, options) for row in rows)))

    summaries = asyncio.run(together())
    for summary in summaries:
        if summary.ok <= LEAST_ANSWERED * summary.requests:
            raise RuntimeError(f"{summary.ok} of {summary.requests} requests were answered: {summary.errors}")
    return summaries


def _policy(fleet: KvFleet) -> RoutingPolicy:
    return policy_of("mooncake", speed=fleet.shape.speed)


# -- live mooncake and what-if


def predicted(rows: Sequence[TraceRow], shape: KvFleetShape, *, loads: bool) -> float:
    """Return the mean TTFT that what-if's simulation predicts."""
    tokens = (shape.dram_mib << 20) // BYTES_PER_TOKEN
    nodes = KvNodesSpec(nodes=shape.nodes, dram_tokens=tokens, homes=shape.homes) if loads else None
    spec = RunSpec(
        policy=policy_of("mooncake"),
        engines=len(shape.homes),
        engine_model="colocated",
        profile=shape.profile,
        kv_nodes=nodes,
    )
    workload = Workload(rows)
    ttft_s = report_of(spec, workload, run(spec, workload), 0.0).ttft_mean_s
    if ttft_s is None:
        raise RuntimeError("nothing was served")
    return ttft_s


def mooncake_windows(folder: Path, windows: int, requests: int, speed: float) -> list[Window]:
    """Return each window's times. The order of the two live runs alternates."""
    profile = EngineProfile(recompute_last_block=True, num_blocks=72)
    shape = KvFleetShape(homes=(0, 1, 0, 1), profile=profile, speed=speed)
    measured = []
    with kv_fleet(folder, shape) as fleet:
        for seed in range(1, windows + 1):
            rows = documents(seed, requests=requests, documents=24, blocks=20, gap_s=0.25)
            live: dict[bool, float] = {}
            # The order alternates, so that a machine that slows down favors neither.
            for loads in (True, False) if seed % 2 else (False, True):
                fleet.forget()
                with fleet.gateway(_policy(fleet), loads=loads):
                    live[loads] = speed * (sent(fleet, rows)[0].ttft_mean_s or 0.0)
            predictions = [predicted(rows, shape, loads=loads) for loads in (True, False)]
            measured.append(Window(live[True], live[False], *predictions))
            print(f"window {seed}: {measured[-1]}", file=sys.stderr)
    return measured


# -- replicas


def replica_pairs(folder: Path, pairs: int, seconds: float, speed: float) -> list[tuple[float, float, float]]:
    """Return the hot prompts' p90 TTFT with and without replication, and the replicas made, for each pair.

    Only node 1 has the prefix, from an engine that then leaves. The others have node 2. Links have 25 Gbit/s.
    """
    profile = EngineProfile(recompute_last_block=True, num_blocks=32, link_bytes_per_s=3.125e9)
    shape, measured = KvFleetShape(homes=(0, 1, 1, 1), profile=profile, speed=speed), []
    with kv_fleet(folder, shape) as fleet:
        for pair in range(1, pairs + 1):
            p90: dict[bool, float] = {}
            made = 0.0
            for replicates in (True, False) if pair % 2 else (False, True):
                # Blocks of their own for each run, so that no run hits those of another.
                base = 10_000_000 * (2 * pair + replicates)
                _plant(fleet, [planted_prefix(base)])
                with fleet.gateway(_policy(fleet), engines=(1, 2, 3), planners=[REPLICATE] if replicates else []):
                    hot, _ = sent(fleet, *hot_and_others(base, seconds))
                    if replicates:
                        made = fleet.gateway_sum("headway_kv_moves_total", 'planner="replicate"', 'outcome="moved"')
                p90[replicates] = hot.ttft_p90_s or 0.0
            measured.append((p90[True], p90[False], made))
            print(
                f"replicas {pair}: p90 {p90[True]:.3f} s with {made:.0f}, {p90[False]:.3f} s without", file=sys.stderr
            )
    return measured


def planted_prefix(base: int) -> TraceRow:
    """Return the prompt whose blocks should be on only one node."""
    return _row(0.0, tuple(range(base, base + _HOT_BLOCKS)), output=1)


def hot_and_others(base: int, seconds: float) -> tuple[list[TraceRow], list[TraceRow]]:
    """Return one question per second with the planted prefix, and prompts that evict it from the engines."""
    hot = range(base, base + _HOT_BLOCKS)
    asked = [_row(1.0 + at, (*hot, base + 100_000 + at)) for at in range(int(seconds))]
    others = [
        _row(0.75 * at, tuple(range(base + 200_000 + 100 * at, base + 200_000 + 100 * at + 24)))
        for at in range(int(seconds / 0.75))
    ]
    return asked, others


def _plant(fleet: KvFleet, rows: Sequence[TraceRow]) -> None:
    """Empty all caches, let the first engine compute the rows, and empty the engines again."""
    fleet.forget()
    with fleet.gateway(_policy(fleet), engines=(0,)):
        sent(fleet, rows)
        # A prompt's last block is not full, and engines keep full ones.
        blocks = sum(len(row.hash_ids) - 1 for row in rows)
        until = time.monotonic() + _LIMIT_S
        while fleet.gateway_sum("headway_kv_node_blocks", 'node="kv-1"') < blocks:
            if time.monotonic() > until:
                raise TimeoutError("what was planted did not come to its node")
            time.sleep(0.1)
    fleet.forget(nodes=False)


# -- prefetch


def prefetch_runs(folder: Path, repeats: int, speed: float) -> list[tuple[float, float, float, float]]:
    """Return, for each run, the tokens that prefetch reports as saved, those sent by the own node, and both TTFTs."""
    profile = EngineProfile(recompute_last_block=True, num_blocks=72)
    shape = KvFleetShape(homes=(0, 1, 1), profile=profile, speed=speed)
    measured = []
    with kv_fleet(folder, shape) as fleet:
        for repeat in range(1, repeats + 1):
            ttft: dict[bool, float] = {}
            saved_tokens = sent_tokens = 0.0
            for prefetches in (True, False) if repeat % 2 else (False, True):
                # Blocks of their own for each run, so that no run hits those of another.
                base = 20_000_000 * (2 * repeat + prefetches)
                planted = planted_documents(base)
                _plant(fleet, planted)
                before = fleet.sent_bytes(1)
                with fleet.gateway(_policy(fleet), engines=(1, 2), planners=[PREFETCH] if prefetches else []):
                    ttft[prefetches] = sent(fleet, burst(planted, base))[0].ttft_mean_s or 0.0
                    if prefetches:
                        saved_tokens = fleet.gateway_sum("headway_kv_move_saved_tokens_total", 'planner="prefetch"')
                        sent_tokens = (fleet.sent_bytes(1) - before) / BYTES_PER_TOKEN
            measured.append((saved_tokens, sent_tokens, ttft[True], ttft[False]))
            print(f"prefetch {repeat}: {measured[-1]}", file=sys.stderr)
    return measured


def planted_documents(base: int) -> list[TraceRow]:
    """Return the prompts whose blocks should be on only one node."""
    return [_row(float(at), tuple(range(base + 100 * at, base + 100 * at + 24)), output=1) for at in range(16)]


def burst(planted: Sequence[TraceRow], base: int) -> list[TraceRow]:
    """Return a question on each document, with much additional text to compute, so that the next ones wait."""
    return [
        _row(0.05 * at, (*row.hash_ids, *range(base + 50_000 + 100 * at, base + 50_000 + 100 * at + 8)))
        for at, row in enumerate(planted)
    ]


# -- the report


def mooncake_figures(windows: Sequence[Window]) -> dict[str, float]:
    """Return the report's figures of the windows."""
    return {
        "windows": float(len(windows)),
        "live_ttft_mean_s": fmean(window.live_s for window in windows),
        "live_off_ttft_mean_s": fmean(window.live_off_s for window in windows),
        "predicted_ttft_mean_s": fmean(window.predicted_s for window in windows),
        "predicted_off_ttft_mean_s": fmean(window.predicted_off_s for window in windows),
        "live_over_predicted": median(window.live_s / window.predicted_s for window in windows),
        "live_off_over_predicted": median(window.live_off_s / window.predicted_off_s for window in windows),
        "loads_over_none": median(window.live_s / window.live_off_s for window in windows),
    }


def replica_figures(pairs: Sequence[tuple[float, float, float]]) -> dict[str, float]:
    """Return the report's figures of replication."""
    return {
        "replicas_made": fmean(pair[2] for pair in pairs),
        "hot_p90_with_over_without": median(pair[0] / pair[1] for pair in pairs),
    }


def prefetch_figures(runs: Sequence[tuple[float, float, float, float]]) -> dict[str, float]:
    """Return the report's figures of prefetch."""
    return {
        "prefetch_said_tokens": fmean(item[0] for item in runs),
        "prefetch_sent_tokens": fmean(item[1] for item in runs),
        "prefetch_said_over_sent": median(item[0] / max(1.0, item[1]) for item in runs),
        "prefetch_ttft_with_over_without": median(item[2] / item[3] for item in runs),
    }


def targets_of(figures: dict[str, float]) -> dict[str, Target]:
    """Return the verdicts defined in the module's docstring, applied to these figures."""
    bounds = (
        ("live_over_predicted", ">=", 1 - NEAR),
        ("live_over_predicted", "<=", 1 + NEAR),
        ("loads_over_none", "<", 1.0),
        ("replicas_made", ">", 0.0),
        ("hot_p90_with_over_without", "<", 1.0),
        ("prefetch_said_over_sent", ">=", 0.9),
        ("prefetch_said_over_sent", "<=", 1.0),
        ("prefetch_said_tokens", ">", 0.0),
    )
    return {
        f"{name} {op} {bound}": Target(value=figures[name], op=op, target=bound)
        for name, op, bound in bounds
        if name in figures
    }


def main() -> int:
    """Measure and write the report. Return 1 if a definition does not hold."""
    parser = command_line("kv_live", __doc__)
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--requests", type=int, default=120, help="requests per window")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of replication windows, and prefetch runs")
    parser.add_argument("--seconds", type=float, default=30.0, help="duration of each replication window")
    parser.add_argument("--speed", type=float, default=1.0, help="model seconds per real second; below 1: less load")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS, help="parts to measure")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        parts = [Path(folder, name) for name in ("mooncake", "replicas", "prefetch")]
        for part in parts:
            part.mkdir()
        figures: dict[str, float] = {"speed": options.speed}
        if "mooncake" in options.parts:
            figures |= mooncake_figures(mooncake_windows(parts[0], options.windows, options.requests, options.speed))
        if "replicas" in options.parts:
            figures |= replica_figures(replica_pairs(parts[1], options.pairs, options.seconds, options.speed))
        if "prefetch" in options.parts:
            figures |= prefetch_figures(prefetch_runs(parts[2], options.pairs, options.speed))
    figures = {name: round(value, 4) for name, value in figures.items()}
    return 0 if write_report("kv_live", figures, targets_of(figures), options.json) else 1


if __name__ == "__main__":
    sys.exit(main())
