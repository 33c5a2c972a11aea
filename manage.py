#!/usr/bin/env python
"""Headway's command line: `python manage.py help`.

Programs without Django, such as simulators, `apply`, and `node`, are dispatched before it loads.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from controlplane.management.programs import PROGRAMS, hide_djangos_options, run_program


def main(argv: list[str]) -> None:
    """Run the command that `argv` names."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
    command = argv[1] if len(argv) > 1 else "help"
    if command in ("-h", "--help"):
        command = "help"
    if command in PROGRAMS:
        sys.exit(run_program(command, argv[2:], Path(argv[0]).name))
    from django.core.management import execute_from_command_line

    hide_djangos_options()
    execute_from_command_line(argv)


if __name__ == "__main__":
    main(sys.argv)
