"""Table of commands that are programs without Django. `manage.py` runs them before Django loads."""

from __future__ import annotations

from importlib import import_module

PROGRAMS = {
    **dict.fromkeys(("apply", "diff", "export"), "controlplane.manifests.command.main"),
    "node": "kvstore.node.command_line",
    "replay": "controlplane.management.replay_command",
    "simengine": "simulator.engine_server.command_line",
    "simulate": "simulator.command.simulate",
    "simulate_regions": "simulator.regions.simulate_regions",
    "simulate_sessions": "simulator.sessions.command",
}
"""Command → the module whose `main` receives its arguments."""


def run_program(command: str, arguments: list[str], caller: str) -> int | None:
    """Run the command's program with unparsed arguments, and return its exit status.

    `caller` is the command line's own name, for usage messages.
    """
    status: int | None = import_module(PROGRAMS[command]).main(arguments, f"{caller} {command}")
    return status
