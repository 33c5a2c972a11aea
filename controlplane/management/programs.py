"""The commands in groups, as `help` lists them, and those that are programs without Django: manage.py runs them before
Django loads.
"""

from __future__ import annotations

import argparse
from importlib import import_module

_MANIFESTS = "controlplane.manifests.command.main"
PROGRAMS = {
    "advise": "simulator.adviser.command",
    "apply": _MANIFESTS,
    "audit-router": "controlplane.router_audit.command",
    "completion": "controlplane.management.command_help",
    "diff": _MANIFESTS,
    "export": _MANIFESTS,
    "help": "controlplane.management.command_help",
    "node": "kvstore.node.command_line",
    "replay": "controlplane.management.replay_command",
    "simengine": "simulator.engine_server.command_line",
    "simulate": "simulator.command.simulate",
    "simulate_regions": "simulator.regions.simulate_regions",
    "simulate_sessions": "simulator.sessions.command",
}
"""Command → the module whose `main` receives its arguments, and whose `parser` describes them."""

GROUPS = {
    "Run": {
        "up": "start gateway, web, and jobs; --demo adds a demo fleet",
        "worker": "start a Celery worker with its scheduler",
        "node": "start a node manager, which stores KV blocks",
    },
    "Connect": {
        "connect": "connect running vLLM or SGLang engines",
        "create_api_key": "create an API key and print it once",
        "revoke_key": "revoke an API key at all gateways without the database",
        "observe": "report another router's access log to an observe-only pool",
    },
    "Configure by files": {
        "export": "print every object of a running installation as YAML",
        "diff": "compare YAML files with a running installation",
        "apply": "apply YAML files to a running installation",
    },
    "Examine": {
        "doctor": "check this installation and print remedies",
        "explain": "explain one decision",
    },
    "Simulate and plan": {
        "simulate": "simulate a policy on a trace",
        "advise": "propose a better policy for a trace, or abstain",
        "simulate_regions": "compare routing policies across regions",
        "simulate_sessions": "compare systems that keep the KV caches of sessions",
        "plan_capacity": "estimate what sharing engines across regions saves",
        "replay_savings": "replay a pool's day under other routers' rules",
        "audit-router": "audit another router from its log, as one report",
        "learn_agents": "learn from the request log which agents call which",
        "replay": "replay a trace against an OpenAI-compatible server",
        "simengine": "start one simulated engine",
    },
    "Maintain": {
        "secrets": "show which process uses which secret, and rotate secrets",
        "backup": "copy an SQLite installation while it runs",
        "changepassword": "set a person's password",
    },
    "Shell": {
        "help": "list the commands, or describe one",
        "completion": "print the completion of bash, zsh, or fish",
    },
}
"""Heading → command → its effect in a few words. Django's development commands are left out; manage.py runs them."""

_DJANGOS_OPTIONS = frozenset(
    ("--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color", "--force-color")
)


def run_program(command: str, arguments: list[str], caller: str) -> int | None:
    """Run the command's program with unparsed arguments, and return its exit status.

    `caller` is the command line's own name, for usage messages.
    """
    status: int | None = import_module(PROGRAMS[command]).main(arguments, f"{caller} {command}")
    return status


def hide_djangos_options() -> None:
    """Leave Django's own options, which still work, out of help and completion: most commands have fewer."""
    from django.core.management import BaseCommand

    BaseCommand.suppressed_base_arguments = _DJANGOS_OPTIONS


def parser_of(command: str, caller: str) -> argparse.ArgumentParser:
    """Return the parser of any command. Those of Django must be loaded for its own commands."""
    if command in PROGRAMS:
        made: argparse.ArgumentParser = import_module(PROGRAMS[command]).parser(f"{caller} {command}")
        return made
    from django.core.management import get_commands, load_command_class

    hide_djangos_options()
    return load_command_class(get_commands()[command], command).create_parser(caller, command)
