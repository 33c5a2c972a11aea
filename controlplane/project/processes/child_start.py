"""The first steps of each child process of Headway."""

from __future__ import annotations

import os
import sys

from controlplane.platform.environment import PROGRAM
from gateway.server.http.connection_limit import allow_open_files
from gateway.server.process.malloc_arenas import limit_arenas
from simulator.parent_death import die_with_parent

LOWER_PRIORITY = 10
"""Nice value of web and jobs, so that decisions have priority if CPU time is scarce."""


def begin(*, nice: int = 0) -> None:
    """End when the process with the id in the only argument ends. Exit immediately if it has already ended."""
    if len(sys.argv) != 2 or not sys.argv[1].isdecimal():
        raise SystemExit(f"`{PROGRAM} up` starts this process; its argument is the parent's process id.")
    die_with_parent(int(sys.argv[1]))
    os.umask(0o077)
    os.nice(nice)
    allow_open_files()
    limit_arenas()
