"""`manage.py simulate`, for `manage.py help`; manage.py itself dispatches it without Django."""

from __future__ import annotations

from typing_extensions import override

from controlplane.management.program_command import ProgramCommand


class Command(ProgramCommand):
    """Hands its arguments to simulator.command.simulate unread."""

    help = "Run policies over a trace under a virtual clock: manage.py simulate TRACE --placement NAME --qps Q."

    @override
    def program(self, arguments: list[str]) -> int | None:
        """Run it; the import waits until then."""
        from simulator.command.simulate import main

        return main(arguments, "manage.py simulate")
