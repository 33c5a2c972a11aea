"""The same rows through a real fleet under several placements: `python -m bench.paired_replay --trace FILE`.

Simulated engines and a gateway run as processes; time in engines and replay runs `--speed` times
faster, so that the load of each engine is the trace's. Hit tokens are the engines' own words
(`usage.prompt_tokens_details.cached_tokens`). Without --trace a generated conversation is replayed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.live_fleet import API_KEY, MODEL, live_fleet
from bench.report import Target, write_report
from routing.policy.policy_document import RoutingPolicy, Stage

_SLO_S, _LOOK_AHEAD_S = 5.0, 0.05

PLACEMENTS = ("round_robin", "dual_map", "least_cost")


def replay(placement: str, options: argparse.Namespace) -> dict[str, Any]:
    """Replay the rows once under one placement and return the client's summary."""
    policy = RoutingPolicy(
        placement=Stage(name=placement),
        order=Stage(name=options.order),
        ttft_slo_s=_SLO_S / options.speed,
        grant_lookahead_s=_LOOK_AHEAD_S / options.speed,
    )
    with TemporaryDirectory() as folder:
        state_dir, summary = Path(folder), Path(folder) / "summary.json"
        with live_fleet(state_dir, policy, engines=options.engines, time_scale=options.speed) as fleet:
            command = [
                sys.executable, "-m", "simulator.replay", options.trace, "--target", fleet.url, "--api-key", API_KEY,
                "--model", MODEL, "--speed", str(options.speed), "--qps", str(options.qps),
                "--max-rows", str(options.max_rows), "--max-input", str(options.max_input), "--json", str(summary),
            ]  # fmt: skip
            subprocess.run(command, check=True)
        result: dict[str, Any] = json.loads(summary.read_text())
        return result


def main() -> None:
    """Replay under each placement and compare hit tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", default="generated")
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--order", default="shed")
    parser.add_argument("--speed", type=float, default=4.0)
    parser.add_argument("--qps", type=float, default=8.0, help="mean requests per trace second")
    parser.add_argument("--max-rows", type=int, default=1200)
    parser.add_argument("--max-input", type=int, default=20_480)
    parser.add_argument("--placements", nargs="+", default=PLACEMENTS, help="the first is the base of the ratios")
    parser.add_argument("--json", type=Path, default=Path("var/bench/paired_replay.json"), metavar="OUT")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    for placement in options.placements:
        print(f"-- {placement}", flush=True)
        summary = replay(placement, options)
        for name in ("ok", "refused", "failed", "prompt_tokens", "cached_tokens", "cached_share"):
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
