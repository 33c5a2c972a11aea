"""The demo's example chat as a child of the supervisor; needs no Django."""

from __future__ import annotations

import os
import sys

from controlplane.project.processes.child_start import LOWER_PRIORITY
from examples.chat.__main__ import main as chat
from simulator.parent_death import die_with_parent


def main() -> int:
    """Run `python -m examples.chat` with the arguments behind the parent's process id, until its end."""
    if len(sys.argv) < 2 or not sys.argv[1].isdecimal():
        raise SystemExit("`manage.py up` starts this process; its first argument is the parent's process id.")
    die_with_parent(int(sys.argv[1]))
    os.nice(LOWER_PRIORITY)
    return chat(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
