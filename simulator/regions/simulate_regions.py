"""`manage.py simulate_regions`: compare routing policies of several regions on one workload, under a virtual clock."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from tqdm import tqdm

from routing.regions.sovereignty import ALLOW_ALL, SovereigntyDocument, problems
from routing.values.prepared_struct import prepared
from simulator.regions.network import REGIONS
from simulator.regions.policies import POLICIES
from simulator.regions.region_report import RegionReport
from simulator.regions.region_run import RegionRun, RegionSpec
from simulator.regions.workloads import WORKLOADS

LEAST_KV_TOKENS = 8_000
"""Minimum KV memory in tokens; the longest prompts would not fit into less."""


def main(argv: Sequence[str], prog: str = "simulate_regions") -> int:
    """Run the command line and return the exit status."""
    command_line = parser(prog)
    options = command_line.parse_args(argv)
    if options.sovereignty != ALLOW_ALL and (central := [name for name in options.policy if POLICIES[name].central]):
        command_line.error(f"one central balancer sees every prompt, so no rule holds under {', '.join(central)}")
    specs = [
        RegionSpec(
            workload=options.workload,
            policy=policy,
            seed=seed,
            clients=options.skew,
            replicas=options.replicas,
            kv_tokens=options.kv_tokens,
            engine_speed=options.engine_speed,
            rtt_scale=options.rtt_scale,
            think_s=options.think,
            duration_s=options.warmup + options.measure,
            warmup_s=options.warmup,
            sovereignty=options.sovereignty,
        )
        for policy in options.policy
        for seed in options.seeds
    ]
    reports = [RegionRun(spec).run() for spec in tqdm(specs, unit="run", disable=None)]
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(reports)) + b"\n")
    sys.stdout.write(render(reports) + "\n")
    return 0


def render(reports: Sequence[RegionReport]) -> str:
    """Return one line per run."""
    lines = [
        f"{'policy':<22}{'seed':>5}{'tokens/s':>10}{'TTFT P50':>10}{'P90 (s)':>9}{'E2E P50':>9}"
        f"{'hits':>7}{'crossed':>9}{'unanswered':>12}"
    ]
    lines += [
        f"{row.policy:<22}{row.seed:>5}{row.tokens_per_s:>10.0f}{row.ttft_p50_s:>10.2f}{row.ttft_p90_s:>9.2f}"
        f"{row.e2e_p50_s:>9.1f}{row.hit_rate:>7.1%}{row.crossed_share:>9.1%}{row.unanswered:>12}"
        for row in reports
    ]
    return "\n".join(lines)


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog=prog, description=__doc__)
    made.add_argument("workload", choices=list(WORKLOADS))
    made.add_argument(
        "--policy", type=_policies, required=True, metavar="NAME", help=f"one or more of {', '.join(POLICIES)}"
    )
    made.add_argument("--replicas", type=_replicas, metavar="N", help="number of engines in total, or US:EU:ASIA")
    made.add_argument("--skew", type=_per_region, metavar="US:EU:ASIA", help="number of clients per region")
    made.add_argument(
        "--kv-tokens", type=_kv_tokens, default=30_000, metavar="N", help="KV memory per engine in tokens"
    )
    made.add_argument("--engine-speed", type=_above_zero, default=1.0, metavar="X")
    made.add_argument("--rtt-scale", type=_from_zero, default=1.0, metavar="X")
    made.add_argument("--think", type=_from_zero, default=0.0, metavar="S", help="mean think time (s)")
    made.add_argument(
        "--sovereignty", type=_document, default=ALLOW_ALL, metavar="FILE", help="sovereignty rules (JSON)"
    )
    made.add_argument("--seeds", type=_whole_numbers, default=[1], metavar="1,2,3")
    made.add_argument(
        "--warmup", type=_from_zero, default=100.0, metavar="S", help="warm-up time, which is not measured (s)"
    )
    made.add_argument("--measure", type=_above_zero, default=300.0, metavar="S", help="measured time (s)")
    made.add_argument("--json", type=Path, metavar="OUT")
    return made


def _policies(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in POLICIES]:
        raise argparse.ArgumentTypeError(f"no policy {', '.join(unknown)}; there are {', '.join(POLICIES)}")
    return names


def _document(path: str) -> SovereigntyDocument:
    try:
        document = msgspec.json.decode(Path(path).read_bytes(), type=prepared(SovereigntyDocument))
    except (OSError, msgspec.DecodeError) as error:
        raise argparse.ArgumentTypeError(f"{path}: {error}") from error
    if wrong := problems(document, REGIONS, document.tenants):
        raise argparse.ArgumentTypeError("; ".join(f"{item.path}: {item.message}" for item in wrong))
    return document


def _per_region(text: str) -> tuple[int, ...]:
    counts = tuple(_whole_numbers(text.replace(":", ",")))
    if len(counts) != len(REGIONS) or min(counts) < 0 or not any(counts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a count for each of {', '.join(REGIONS)}, as in 120:40:40")
    return counts


def _replicas(text: str) -> tuple[int, ...]:
    """Return the number of engines per region. A single number is divided evenly; the first regions get the
    remainder.
    """
    if ":" in text:
        return _per_region(text)
    total, regions = _whole_numbers(text)[0], len(REGIONS)
    if total < regions:
        raise argparse.ArgumentTypeError(f"{text!r} is fewer than one engine per region; name regions as in 4:0:0")
    return tuple(total // regions + (index < total % regions) for index in range(regions))


def _whole_numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers") from error


def _kv_tokens(text: str) -> int:
    tokens = _whole_numbers(text)[0]
    if tokens < LEAST_KV_TOKENS:
        raise argparse.ArgumentTypeError(f"{text!r} is below {LEAST_KV_TOKENS} tokens")
    return tokens


def _from_zero(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0")
    return value


def _above_zero(text: str) -> float:
    value = _from_zero(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return value
