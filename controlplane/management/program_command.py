"""Commands that are programs without Django: manage.py dispatches them itself, and `manage.py help` finds them here."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Any

from django.core.management.base import BaseCommand
from typing_extensions import override


class ProgramCommand(BaseCommand, ABC):
    """Hands its arguments to a program unread."""

    requires_system_checks = ()

    @abstractmethod
    def program(self, arguments: list[str]) -> int | None:
        """Run the program and return its exit status."""

    @override
    def run_from_argv(self, argv: list[str]) -> None:
        """Run it with the arguments after the command's name."""
        sys.exit(self.program(argv[2:]))

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Run it with the arguments of the process."""
        self.run_from_argv(sys.argv)
