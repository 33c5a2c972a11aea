"""`manage.py simengine`, for `manage.py help`; manage.py itself dispatches it without Django."""

from __future__ import annotations

from typing_extensions import override

from controlplane.management.program_command import ProgramCommand


class Command(ProgramCommand):
    """Hands its arguments to simulator.engine_server unread."""

    help = "Run one simulated engine that speaks vLLM's HTTP API: manage.py simengine --port PORT."

    @override
    def program(self, arguments: list[str]) -> int | None:
        """Run it; the import waits until then."""
        from simulator.engine_server.command_line import main

        main(arguments)
        return None
