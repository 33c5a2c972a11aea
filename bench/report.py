"""Write one benchmark's result in the format that all benchmarks share."""

from __future__ import annotations

import argparse
import json
import operator
import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A measured value and its bound. `op` is one of <=, >=, <, and >."""

    value: float
    op: str
    target: float

    @property
    def holds(self) -> bool:
        """Whether the value is within the bound."""
        return _OPERATORS[self.op](self.value, self.target)


def command_line(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return the command line of a benchmark. --json names the output file."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, default=Path(f"var/bench/{name}.json"), metavar="OUT")
    return parser


def report(name: str, figures: Mapping[str, float], targets: Mapping[str, Target]) -> dict[str, object]:
    """Return the result as it is written, including machine and commit."""
    return {
        "name": name,
        "machine": _machine(),
        "commit": commit(),
        "figures": dict(figures),
        "targets": {
            key: {"value": target.value, "op": target.op, "target": target.target, "holds": target.holds}
            for key, target in targets.items()
        },
    }


def write_report(name: str, figures: Mapping[str, float], targets: Mapping[str, Target], path: str | Path) -> bool:
    """Write the result as JSON and print it. Return whether all targets hold."""
    result = report(name, figures, targets)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    width = max((len(key) for key in [*figures, *targets]), default=0)
    print(f"{name}: {result['machine']}, commit {result['commit']}")
    for key, value in figures.items():
        print(f"  {key:<{width}}  {value:.5g}")
    for key, target in targets.items():
        verdict = "holds" if target.holds else "MISSED"
        print(f"  {key:<{width}}  {target.value:.5g} {target.op} {target.target:.5g}: {verdict}")
    return all(target.holds for target in targets.values())


def _machine() -> str:
    interpreter = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {interpreter}"


def commit() -> str:
    """Return the short name of the checked-out commit, `unknown` if git reports none."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).resolve().parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()
