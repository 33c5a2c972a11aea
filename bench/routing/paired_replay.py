"""Replay rows through a real fleet under several placements: `python -m bench.routing.paired_replay --trace FILE`.

Simulated engines and a gateway run as processes. Time in engines and replay runs `--speed` times faster, so that the
load of each engine is the trace's. The engines report the hit tokens (`usage.prompt_tokens_details.cached_tokens`).
Without --trace, a generated conversation is replayed.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from bench.live.live_replay import Fleet, policy_of, replayed
from bench.report import Target, command_line, write_report
from simulator.workloads.conversation_like import generate
from simulator.workloads.trace import read_trace

PLACEMENTS = ("round_robin", "dual_map", "least_cost")


def main() -> None:
    """Replay under each placement and compare hit tokens."""
    parser = command_line("paired_replay", __doc__)
    parser.add_argument("--trace", type=Path, help="Mooncake JSONL trace (default: generated)")
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--order", default="late_last")
    parser.add_argument("--speed", type=float, default=4.0)
    parser.add_argument("--qps", type=float, default=8.0, help="mean requests per trace second")
    parser.add_argument("--max-rows", type=int, default=1200)
    parser.add_argument("--max-input", type=int, default=20_480)
    parser.add_argument("--placements", nargs="+", default=PLACEMENTS, help="ratios are relative to the first")
    options = parser.parse_args()
    rows = read_trace(options.trace, options.max_rows) if options.trace else generate(options.max_rows, 0)
    fleet = Fleet(engines=options.engines, speed=options.speed)
    figures: dict[str, float] = {}
    for placement in options.placements:
        print(f"-- {placement}", flush=True)
        policy = policy_of(placement, options.order, speed=options.speed)
        replaying = replayed(rows, policy, fleet, qps=options.qps, max_input=options.max_input, chat=True)
        summary = msgspec.to_builtins(asyncio.run(replaying))
        for name in ("ok", "rejected", "failed", "prompt_tokens", "cached_tokens", "cached_share"):
            figures[f"{placement}_{name}"] = summary[name]
        for name in ("ttft_p50_s", "ttft_p90_s", "ttft_p99_s"):
            figures[f"{placement}_{name}"] = round(summary[name] * options.speed, 3)
    base_name = options.placements[0]
    base = figures[f"{base_name}_cached_tokens"]
    targets: dict[str, Target] = {}
    for placement in options.placements[1:]:
        name = f"{placement}_hit_tokens_over_{base_name}"
        figures[name] = round(figures[f"{placement}_cached_tokens"] / base, 3)
        targets[name] = Target(value=figures[name], op=">=", target=1.5)
    write_report("paired_replay", figures, targets, options.json)


if __name__ == "__main__":
    main()
