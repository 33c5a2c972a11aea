"""`manage.py simulate_sessions`, for `manage.py help`; manage.py itself dispatches it without Django."""

from __future__ import annotations

from typing_extensions import override

from controlplane.management.program_command import ProgramCommand


class Command(ProgramCommand):
    """Hands its arguments to simulator.sessions.command unread."""

    help = "Simulate sessions that come back: manage.py simulate_sessions chat --system ours --users 256."

    @override
    def program(self, arguments: list[str]) -> int | None:
        """Run it; the import waits until then."""
        from simulator.sessions.command import main

        return main(arguments, "manage.py simulate_sessions")
