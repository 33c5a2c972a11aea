"""What an installation without requests costs: `python -m bench.installation.idle --json OUT [--seconds S]`.

Starts `manage.py up` in an empty state directory, once without a single engine and once with the demo, waits until the
start is over, and measures each process: its share of a core, and its memory. PSS divides shared pages among the
processes that share them, so the sum of PSS is the installation's memory. The demo is not idle: its figures are the
cost of eight simulated engines and of nine requests per second.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.live.live_program import LiveProgram
from bench.live.process_cpu import cpu_by_process
from bench.report import Target, command_line, write_report

STARTED_S = 20.0
"""Time from the first page until jobs have made their first rounds."""
MB = 1e6
_MODULES = {
    "simulator.engine_server": "engines",
    "simulator.replay": "replay",
    "kvstore.node.command_line": "nodes",
    "examples.chat.__main__": "chat",
}
MODES = {"idle": ("--no-demo",), "demo": ("--demo",)}
LIMITS = {"idle_cpu_share": 0.03, "idle_pss_mb": 350.0, "demo_cpu_share": 0.35}


class ProcessCost(NamedTuple):
    """CPU seconds per second and memory of the processes with one name."""

    cpu_share: float
    pss_mb: float
    rss_mb: float


def demo_ports() -> dict[str, str]:
    """Return the environment that keeps this process's demo away from the ports of others."""
    return {"HEADWAY_DEMO_PORTS_FROM": str(22_000 + os.getpid() % 90 * 100)}


def name_of(command: str) -> str:
    """Return the name of a process with this NUL-separated command line."""
    words = command.rstrip("\0").split("\0")
    for word in words[1:]:
        if word in _MODULES:
            return _MODULES[word]
        if word.startswith("controlplane.project.processes.") and word.endswith("_process"):
            return word.rpartition(".")[2].removesuffix("_process")
    return "supervisor" if "manage.py" in words else Path(words[0]).name


def memory_mb(pid: int) -> tuple[float, float]:
    """Return a process's (PSS, RSS) in MB. Raises FileNotFoundError or ProcessLookupError if it is gone."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = {words[0]: int(words[1]) for words in map(str.split, rows[1:])}
    return sizes["Pss:"] * 1024 / MB, sizes["Rss:"] * 1024 / MB


def costs(pid: int, seconds: float) -> dict[str, ProcessCost]:
    """Return the costs of the process and its descendants by name, over `seconds`."""
    before, began_s = cpu_by_process(pid), time.monotonic()
    time.sleep(seconds)
    after, took_s = cpu_by_process(pid), time.monotonic() - began_s
    by_name: dict[str, list[ProcessCost]] = {}
    for process, used_s in after.items():
        cost = ProcessCost((used_s - before.get(process, 0.0)) / took_s, *memory_mb(process))
        by_name.setdefault(name_of(Path(f"/proc/{process}/cmdline").read_text()), []).append(cost)
    return {name: ProcessCost(*map(sum, zip(*each, strict=True))) for name, each in sorted(by_name.items())}


def measure(arguments: tuple[str, ...], seconds: float, started_s: float) -> dict[str, ProcessCost]:
    """Return the costs of a new installation by process."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as name:
        program = LiveProgram(Path(name), demo_ports(), arguments)
        try:
            program.start()
            time.sleep(started_s)
            return costs(program.pid, seconds)
        finally:
            program.stop()


def main() -> int:
    """Measure, print the report, and return 0 if the figures are within the limits."""
    parser = command_line("idle", __doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--started", type=float, default=STARTED_S, help="seconds from the first page to the measurement"
    )
    parser.add_argument("--only", choices=tuple(MODES), help="measure one kind of installation")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    for mode in [options.only] if options.only else MODES:
        by_name = measure(MODES[mode], options.seconds, options.started)
        for name, cost in by_name.items():
            figures |= {f"{mode}_{name}_{what}": value for what, value in cost._asdict().items()}
        for what, values in zip(ProcessCost._fields, zip(*by_name.values(), strict=True), strict=True):
            figures[f"{mode}_{what}"] = sum(values)
    figures["load_average"] = os.getloadavg()[0]
    targets = {
        name: Target(value=figures.pop(name), op="<=", target=limit)
        for name, limit in LIMITS.items()
        if name in figures
    }
    return 0 if write_report("idle", figures, targets, options.json) else 1


if __name__ == "__main__":
    sys.exit(main())
