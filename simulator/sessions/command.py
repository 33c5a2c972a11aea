"""`manage.py simulate_sessions`: simulate returning sessions on one or several systems that store KV caches."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec
from tqdm import tqdm

from simulator.command.option_values import OptionValues
from simulator.command.simulate_table import text_table
from simulator.sessions.hardware import SERVED_MODELS
from simulator.sessions.session_report import SessionReport
from simulator.sessions.session_run import MEASURED_S, WORKLOADS, CacheOn, SessionSpec, run_sessions
from simulator.sessions.systems import SYSTEMS

_MOST_USERS = 100_000
_COLUMNS = (
    ("norm_ms_per_token", "ms/token", "{:.1f}"),
    ("tpot_ms", "TPOT ms", "{:.1f}"),
    ("ttft_mean_s", "TTFT s", "{:.3f}"),
    ("ttft_p99_s", "p99 s", "{:.2f}"),
    ("requests_per_s", "req/s", "{:.2f}"),
    ("max_over_mean_kv", "max/mean KV", "{:.2f}"),
    ("wasted_bytes", "wasted GB", "{:.1f}"),
)


def main(argv: Sequence[str], prog: str = "simulate_sessions") -> int:
    """Run the command line and return the exit status: 0, or 2 if the arguments are invalid."""
    arguments = parser(prog).parse_args(argv)
    specs, problems = specs_of(arguments)
    if problems:
        for problem in problems:
            sys.stderr.write(f"{prog}: {problem}\n")
        return 2
    reports = [run_sessions(spec) for spec in tqdm(specs, unit="run", disable=None)]
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(reports)) + b"\n")
    sys.stdout.write(_table(reports))
    return 0


def specs_of(arguments: argparse.Namespace) -> tuple[list[SessionSpec], list[str]]:
    """Return one run per system and seed, and the problems of the arguments."""
    values = OptionValues(arguments)
    users = values.whole("users", 1, _MOST_USERS)
    memory = values.whole("hbm_tokens", 1_000)
    files = values.whole("files", 1, 1_000)
    dram_gb, lead_s, measured_s = values.from_zero("dram_gb"), values.above_zero("lead"), values.above_zero("seconds")
    priority = values.from_zero("priority")
    missed, spurious = values.from_zero("missed"), values.from_zero("spurious")
    systems = arguments.system.split(",")
    for unknown in [name for name in systems if name not in SYSTEMS]:
        values.problem(f"--system: no system is named {unknown!r}; there are {', '.join(SYSTEMS)}")
    for name, share in (("--missed", missed), ("--spurious", spurious), ("--priority", priority)):
        if share is not None and share > 1:
            values.problem(f"{name}: {share:g} is not a share from 0 to 1")
    seeds = [seed for seed in arguments.seeds.split(",") if seed.isdecimal()]
    if ",".join(seeds) != arguments.seeds or not seeds:
        values.problem(f"--seeds: {arguments.seeds!r} is not a list of whole numbers such as 1,2,3")
    if values.problems:
        return [], values.problems
    return [
        SessionSpec(
            workload=arguments.workload, system=system, users=users or 1, seed=int(seed), model=arguments.model,
            dram_gb=dram_gb or 0.0, hbm_tokens=memory, cache_on=arguments.cache_on, missed=missed or 0.0,
            spurious=spurious or 0.0, lead_s=lead_s, fresh=arguments.fresh, priority=priority or 0.0,
            compressed=arguments.compressed, files=files or 1, measured_s=measured_s or MEASURED_S,
        )
        for system in systems
        for seed in seeds
    ], []  # fmt: skip


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog=prog, description=__doc__)
    made.add_argument("workload", choices=WORKLOADS, metavar="WORKLOAD", help=", ".join(WORKLOADS))
    made.add_argument(
        "--system",
        required=True,
        metavar="NAME",
        help=f"one system, or several separated by commas: {', '.join(SYSTEMS)}",
    )
    made.add_argument("--users", required=True, metavar="N", help="number of people, or of agents' projects")
    made.add_argument("--model", choices=sorted(SERVED_MODELS), default="8b", help="served model (default 8b)")
    made.add_argument("--dram-gb", default="200", metavar="N", help="DRAM for KV caches, per node (default 200)")
    made.add_argument(
        "--hbm-tokens", metavar="N", help="KV tokens that fit in an engine's memory (default: the model's)"
    )
    made.add_argument(
        "--cache-on", choices=get_args(CacheOn), default="dram", help="where caches are kept between turns"
    )
    made.add_argument("--missed", default="0", metavar="X", help="share of requests without an advisory")
    made.add_argument(
        "--spurious", default="0", metavar="X", help="additional advisories without a request, per request"
    )
    made.add_argument("--lead", metavar="S", help="mean lead time of an advisory (default: the typing time, 11.3 s)")
    made.add_argument("--fresh", action="store_true", help="start all people at the first turn of a conversation")
    made.add_argument("--priority", default="0", metavar="X", help="share of people whose requests have priority")
    made.add_argument(
        "--compressed", action="store_true", help="compress caches below engine memory by a factor of 3.5"
    )
    made.add_argument("--files", default="8", metavar="N", help="files per agents' project (default 8)")
    made.add_argument("--seconds", default=str(MEASURED_S), metavar="S", help="measured time after 60 s of warm-up")
    made.add_argument("--seeds", default="1", metavar="N,N", help="one run per seed and system (default 1)")
    made.add_argument("--json", type=Path, metavar="OUT", help="file for the list of reports")
    return made


def _table(reports: Sequence[SessionReport]) -> str:
    rows = [["system", "users", "seed", *(title for _, title, _ in _COLUMNS)]]
    for report in reports:
        figures = msgspec.structs.asdict(report) | {"wasted_bytes": report.wasted_bytes / 1e9}
        rows.append(
            [report.system, str(report.users), str(report.seed)]
            + [shape.format(figures[name]) for name, _, shape in _COLUMNS]
        )
    return "\n".join(text_table(rows)) + "\n"
