#!/usr/bin/env python
"""Switchyard's command line: `python manage.py help`.

`simengine`, `replay` and `simulate` start many times and need no Django, so they are dispatched before it loads.
"""

from __future__ import annotations

import os
import sys


def main(argv: list[str]) -> None:
    """Run the command that `argv` names."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    command = argv[1] if len(argv) > 1 else ""
    if command == "simengine":
        from simulator.engine_server.command_line import main as simengine

        simengine(argv[2:])
    elif command == "replay":
        from controlplane.replay_command import main as replay

        sys.exit(replay(argv[2:]))
    elif command == "simulate":
        from simulator.command.simulate import main as simulate

        sys.exit(simulate(argv[2:], "manage.py simulate"))
    else:
        from django.core.management import execute_from_command_line

        execute_from_command_line(argv)


if __name__ == "__main__":
    main(sys.argv)
