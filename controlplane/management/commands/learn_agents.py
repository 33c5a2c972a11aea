"""`manage.py learn_agents`: derives the call graph of agents from the request log, as a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError, CommandParser
from typing_extensions import override

from controlplane.request_log.call_graph import recorded_call_graph
from routing.advisories.call_graph import CallGraph


class Command(BaseCommand):
    """Learns the call graph of requests with the headers x-agent and x-workflow-id."""

    help = "Learn from recorded requests which agents call which (docs/agents.md)."
    requires_system_checks = ()

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--out", type=Path, help="file for the graph, the body of PUT /api/v1/call_graph")
        parser.add_argument("--hours", type=float, default=24.0, help="hours of the log to read (default: 24)")
        parser.add_argument("--pool", default="", help="id of one pool (default: all)")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Print the graph, and write it to the given file."""
        now = time.time()
        try:
            graph = recorded_call_graph(now - options["hours"] * 3600, now + 1, options["pool"])
        except ValueError as error:
            raise CommandError(str(error)) from error
        if not graph.agents:
            raise CommandError("No recorded request names an agent: send the headers x-agent and x-workflow-id.")
        self.stdout.write("\n".join(_lines(graph)))
        if options["out"] is not None:
            options["out"].write_bytes(msgspec.json.format(msgspec.json.encode({"agents": graph.agents})) + b"\n")


def _lines(graph: CallGraph) -> list[str]:
    lines = [f"{'Agent':24}{'Calls':>8}  Next agents: share, seconds later"]
    for agent, following in graph.agents.items():
        successors = ", ".join(f"{item.agent} {item.probability:.0%} {item.after_s:.1f} s" for item in following)
        lines.append(f"{agent:24}{graph.calls[agent]:>8}  {successors or '(ends)'}")
    return lines
