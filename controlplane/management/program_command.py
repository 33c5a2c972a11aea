"""Entries in `manage.py help` for programs without Django, which manage.py runs before Django loads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from typing_extensions import override

from controlplane.management.programs import run_program


class ProgramCommand(BaseCommand):
    """Passes its arguments, unparsed, to the program of the same name."""

    requires_system_checks = ()

    @override
    def run_from_argv(self, argv: list[str]) -> None:
        """Run the program with the arguments after the command's name."""
        sys.exit(run_program(self.__module__.rpartition(".")[2], argv[2:], Path(argv[0]).name))

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Run the program with the arguments of the process."""
        self.run_from_argv(sys.argv)
