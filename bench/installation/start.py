"""The CPU cost of starting the whole program: `python -m bench.installation.start --json OUT`.

CPU seconds (user and system) of the supervisor and all its processes, from `manage.py up` until a browser has loaded
the sign-in page, first in an empty state directory and then in the same, filled one. Figures are medians over the
rounds.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.live.live_program import LiveProgram
from bench.live.process_cpu import cpu_s
from bench.report import command_line, write_report


def started(program: LiveProgram) -> tuple[float, float]:
    """Start the program, return the CPU and wall seconds until it serves a page, then stop it."""
    began_s = time.monotonic()
    program.start()
    try:
        return cpu_s(program.pid), time.monotonic() - began_s
    finally:
        program.stop()


def main() -> None:
    """Measure and write the report."""
    parser = command_line("start", __doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    empty, filled = [], []
    for _ in range(arguments.rounds):
        with TemporaryDirectory() as name:
            program = LiveProgram(Path(name))
            empty.append(started(program))
            filled.append(started(program))
    figures = {
        f"{name}_{what}": statistics.median(values)
        for name, measured in (("empty", empty), ("filled", filled))
        for what, values in zip(("cpu_s", "wall_s"), zip(*measured, strict=True), strict=True)
    }
    write_report("start", figures, {}, arguments.json)


if __name__ == "__main__":
    main()
