"""`python -m simulator.workloads NAME --out FILE`: write a generated workload as a Mooncake trace."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from simulator.workloads.registry import WORKLOADS, WrongWorkloadError, generate_workload
from simulator.workloads.trace import write_trace


def main(argv: Sequence[str] | None = None) -> int:
    """Generate and write a workload. Return the exit status, 2 if a name or setting is invalid."""
    options = _parser().parse_args(argv)
    try:
        settings = dict(_setting(text) for text in options.param)
        if options.qps is not None:
            settings["qps"] = options.qps
        rows = generate_workload(options.name, seed=options.seed, rows=options.rows, settings=settings)
        count = write_trace(options.out, rows)
    except (WrongWorkloadError, OSError) as error:
        print(f"workloads: {error}", file=sys.stderr)  # noqa: T201 (a command's own message)
        return 2
    prompt = sum(row.input_length for row in rows) / max(1, count)
    print(f"{options.out}: {count} requests, {prompt:.0f} prompt tokens in the mean")  # noqa: T201 (as above)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulator.workloads", description=__doc__)
    add = parser.add_argument
    add("name", help=f"one of {', '.join(sorted(WORKLOADS))}")
    add("--out", type=Path, required=True, help="file to write, JSONL or .gz")
    add("--rows", type=int, help="number of requests (default: the workload's)")
    add("--seed", type=int, default=0)
    add("--qps", type=float, help="mean requests per second (default: the workload's)")
    add("--param", action="append", default=[], metavar="KEY=VALUE", help="setting of the workload; lists in JSON")
    return parser


def _setting(text: str) -> tuple[str, object]:
    name, separator, value = text.partition("=")
    if not separator:
        raise WrongWorkloadError(f"{text!r} is no KEY=VALUE")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value


if __name__ == "__main__":
    sys.exit(main())
