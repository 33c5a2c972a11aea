"""`manage.py simengine`, for `manage.py help`; manage.py itself dispatches it without Django."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand
from typing_extensions import override


class Command(BaseCommand):
    """Hands its arguments to simulator.engine_server unread."""

    help = "Run one simulated engine that speaks vLLM's HTTP API: manage.py simengine --port PORT."
    requires_system_checks = ()

    @override
    def run_from_argv(self, argv: list[str]) -> None:
        """Run the engine with the arguments after the command's name."""
        from simulator.engine_server.command_line import main

        main(argv[2:])

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Run the engine with the arguments of the process."""
        self.run_from_argv(sys.argv)
