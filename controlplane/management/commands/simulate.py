"""`manage.py simulate`, for `manage.py help`; manage.py itself dispatches it without Django."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand
from typing_extensions import override


class Command(BaseCommand):
    """Hands its arguments to simulator.command.simulate unread."""

    help = "Run policies over a trace under a virtual clock: manage.py simulate TRACE --placement NAME --qps Q."
    requires_system_checks = ()

    @override
    def run_from_argv(self, argv: list[str]) -> None:
        """Simulate with the arguments after the command's name."""
        from simulator.command.simulate import main

        sys.exit(main(argv[2:], "manage.py simulate"))

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Simulate with the arguments of the process."""
        self.run_from_argv(sys.argv)
