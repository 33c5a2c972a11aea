"""Table of commands that are programs without Django. `manage.py` runs them before Django loads."""

from __future__ import annotations

from importlib import import_module

PROGRAMS = {
    "node": "kvstore.node.command_line",
    "replay": "controlplane.management.replay_command",
    "simengine": "simulator.engine_server.command_line",
    "simulate": "simulator.command.simulate",
    "simulate_regions": "simulator.regions.simulate_regions",
    "simulate_sessions": "simulator.sessions.command",
}
"""Command → the module whose `main` receives its arguments."""
_NAMED = ("simulate", "simulate_regions", "simulate_sessions")
"""Commands that receive the name by which they were called, for their usage message."""


def run_program(command: str, arguments: list[str]) -> int | None:
    """Run the command's program with unparsed arguments, and return its exit status."""
    main = import_module(PROGRAMS[command]).main
    status: int | None = main(arguments, f"manage.py {command}") if command in _NAMED else main(arguments)
    return status
