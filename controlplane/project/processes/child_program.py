"""Runs a program without Django as a child of the supervisor: a node manager, the demo's example chat, or the gateway
of another demo region.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from controlplane.project.processes.child_start import LOWER_PRIORITY
from simulator.parent_death import die_with_parent

KV_NODE, EXAMPLE_CHAT, GATEWAY = "kvstore.node.command_line", "examples.chat.__main__", "gateway.__main__"


def main(program: str, parent: str, *arguments: str) -> int:
    """Run the program's `main` with its arguments until SIGTERM or until the process with the id `parent` dies."""
    die_with_parent(int(parent))
    os.umask(0o077)
    if program != GATEWAY:
        os.nice(LOWER_PRIORITY)
    status: int = import_module(program).main(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
