#!/usr/bin/env python
"""Headway's command line: `python manage.py help`.

Simulators, `replay` and `node` need no Django, so they are dispatched before it loads.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from controlplane.management.programs import PROGRAMS, run_program


def main(argv: list[str]) -> None:
    """Run the command that `argv` names."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
    command = argv[1] if len(argv) > 1 else ""
    if command in PROGRAMS:
        sys.exit(run_program(command, argv[2:], Path(argv[0]).name))
    from django.core.management import execute_from_command_line

    execute_from_command_line(argv)


if __name__ == "__main__":
    main(sys.argv)
