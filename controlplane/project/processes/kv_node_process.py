"""One of the supervisor's node managers; needs no Django."""

from __future__ import annotations

import os
import sys

from controlplane.project.processes.child_start import LOWER_PRIORITY
from kvstore.node.command_line import main as node
from simulator.parent_death import die_with_parent


def main() -> int:
    """Run `manage.py node` with the arguments behind the parent's process id, until SIGTERM or the parent's death."""
    if len(sys.argv) < 2 or not sys.argv[1].isdecimal():
        raise SystemExit("`manage.py up` starts this process; its first argument is the parent's process id.")
    die_with_parent(int(sys.argv[1]))
    os.umask(0o077)
    os.nice(LOWER_PRIORITY)
    return node(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
