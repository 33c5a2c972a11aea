"""`manage.py replay`, for `manage.py help`; manage.py itself dispatches it without Django."""

from __future__ import annotations

from typing_extensions import override

from controlplane.management.program_command import ProgramCommand


class Command(ProgramCommand):
    """Hands its arguments to simulator.replay unread."""

    help = "Replay a Mooncake trace against a gateway: manage.py replay TRACE --target URL --speed S."

    @override
    def program(self, arguments: list[str]) -> int | None:
        """Run it; the import waits until then."""
        from controlplane.management.replay_command import main

        return main(arguments)
