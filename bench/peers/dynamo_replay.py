"""Compare the simulator with another one: `python -m bench.peers.dynamo_replay` (`make bench-peers`).

The whole conversation trace runs through NVIDIA Dynamo's offline replay with its mock engines, and through ours with
`chunked` engines of the same size, with round robin and Dynamo's own KV-aware rule in each. The comparison covers reuse
and the ratio of KV-aware to round robin, not absolute times: the two simulate different devices.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from bench.evidence.store import Result, Row, save
from bench.evidence.traces import trace_file, whole_trace
from bench.peers.environment import peer_python
from routing.policy.policy_document import RoutingPolicy, Stage
from simulator.engine_models.engine_profile import EngineProfile
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import RunSpec, run
from simulator.workloads.prepared_workload import Workload

REQUIREMENT = "ai-dynamo-runtime==1.6.1"
ENGINES = 8
SETTINGS = ((2048, 1.0), (2048, 2.0), (16_384, 1.0), (16_384, 2.0))
"""Blocks of 512 tokens per engine, and the arrival rate relative to the recording."""
MOCK_ENGINE = EngineProfile(
    prefill_base_s=0.0058,
    prefill_per_token_s=20.5e-6,
    prefill_per_token_squared_s=0.0,
    prefill_per_hit_token_s=0.0,
    step_base_s=0.0057,
    step_per_sequence_s=0.0,
    step_per_context_token_s=77e-9,
    recompute_last_block=True,
    source="Dynamo's mock engine as its own summaries show it: least and median time between tokens of 5.8 and 6.8 ms "
    "at about 13,000 tokens of context, 175 ms for a step of 8,192 prompt tokens.",
)
DIFFERENCES = (
    "Reuse under round robin, where no router matters, differs by little: the caches are alike. Under the KV-aware "
    "rule Dynamo's router hears of blocks when they are stored; ours counts blocks that are on their way as well, so "
    "bursts of one prefix part in different ways. Times are comparable only as ratios: our engine has the speed that "
    "Dynamo's summaries show (least and usual time between tokens, longest step), not its polynomial."
)


def theirs(blocks: int, speed: float) -> dict[str, dict[str, float]]:
    """Return Dynamo's summaries by router mode. Raises RuntimeError if it cannot run."""
    python = peer_python("dynamo", REQUIREMENT).absolute()
    with TemporaryDirectory() as folder:
        plain = Path(folder) / "trace.jsonl"
        plain.write_bytes(gzip.decompress(trace_file("conversation").read_bytes()))
        command = [
            str(item) for item in (python, Path(__file__).with_name("dynamo_mocker.py"), plain, ENGINES, blocks, speed)
        ]
        environment = {**os.environ, "DYN_LOG": "error"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=folder)
    if done.returncode:
        raise RuntimeError("Dynamo's replay failed:\n" + "\n".join(done.stderr.splitlines()[-5:]))
    summaries: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {
        mode: {
            "reuse": summary["prefix_cache_reused_ratio"],
            "ttft_mean": summary["mean_ttft_ms"] / 1000,
            "ttft_p99": summary["p99_ttft_ms"] / 1000,
        }
        for mode, summary in summaries.items()
    }


def ours(blocks: int, speed: float) -> dict[str, dict[str, float]]:
    """Return our figures under round robin and Dynamo's rule, with immediate dispatch as in Dynamo."""
    faster = [msgspec.structs.replace(row, timestamp=int(row.timestamp / speed)) for row in whole_trace("conversation")]
    workload = Workload(faster)
    by_mode = {}
    for mode, placement in (("round_robin", "round_robin"), ("kv_router", "dynamo_kv")):
        policy = RoutingPolicy(
            placement=Stage(name=placement),
            order=Stage(name="fifo"),
            prefill_cost=MOCK_ENGINE.prefill_cost,
            prefill_window_tokens=1_000_000,
            queue_limit=1_000_000,
            reservation_ttl_s=86_400.0,
        )
        profile = msgspec.structs.replace(MOCK_ENGINE, num_blocks=blocks)
        spec = RunSpec(policy=policy, engines=ENGINES, engine_model="chunked", profile=profile)
        report = report_of(spec, workload, run(spec, workload), 0.0)
        if report.ttft_mean_s is None or report.ttft_p99_s is None:
            raise RuntimeError("nothing was served")
        by_mode[mode] = {"reuse": report.token_hit_rate, "ttft_mean": report.ttft_mean_s, "ttft_p99": report.ttft_p99_s}
    return by_mode


def row_of(simulator: str, setting: str, figures: dict[str, dict[str, float]]) -> Row:
    """Return one line of the comparison."""
    base, aware = figures["round_robin"], figures["kv_router"]
    return {
        "simulator": simulator,
        "setting": setting,
        "reuse_round_robin": base["reuse"],
        "reuse_kv": aware["reuse"],
        "reuse_ratio": aware["reuse"] / base["reuse"],
        "ttft_mean_ratio": aware["ttft_mean"] / base["ttft_mean"],
        "ttft_p99_ratio": aware["ttft_p99"] / base["ttft_p99"],
    }


def main() -> None:
    """Run both and write the result."""
    rows: list[Row] = []
    for blocks, speed in SETTINGS:
        setting = f"{blocks:,} blocks, ×{speed:g}"
        for simulator, measure in (("Dynamo", theirs), ("Headway", ours)):
            rows.append(row_of(simulator, setting, measure(blocks, speed)))
            print(rows[-1], flush=True)
    print(
        save(
            Result(
                name="dynamo_replay",
                command="python -m bench.peers.dynamo_replay",
                settings={"peer": REQUIREMENT, "engines": ENGINES, "differences": DIFFERENCES},
                rows=rows,
            )
        )
    )


if __name__ == "__main__":
    main()
