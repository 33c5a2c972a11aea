"""Entries in `manage.py help` for programs without Django; manage.py itself runs them before Django loads."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand
from typing_extensions import override

from controlplane.management.programs import run_program


class ProgramCommand(BaseCommand):
    """Passes its arguments unread to the program of its name."""

    requires_system_checks = ()

    @override
    def run_from_argv(self, argv: list[str]) -> None:
        """Run it with the arguments after the command's name."""
        sys.exit(run_program(self.__module__.rpartition(".")[2], argv[2:]))

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Run it with the arguments of the process."""
        self.run_from_argv(sys.argv)
