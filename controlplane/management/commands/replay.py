"""`manage.py replay`, for `manage.py help`; manage.py itself dispatches it without Django."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand
from typing_extensions import override


class Command(BaseCommand):
    """Hands its arguments to simulator.replay unread."""

    help = "Replay a Mooncake trace against a gateway: manage.py replay TRACE --target URL --speed S."
    requires_system_checks = ()

    @override
    def run_from_argv(self, argv: list[str]) -> None:
        """Replay with the arguments after the command's name."""
        from controlplane.replay_command import main

        sys.exit(main(argv[2:]))

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Replay with the arguments of the process."""
        self.run_from_argv(sys.argv)
