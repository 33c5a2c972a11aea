#!/usr/bin/env python
"""Switchyard's command line: `python manage.py help`.

`simengine`, `replay`, `node` and the simulators need no Django, so they are dispatched before it loads.
"""

from __future__ import annotations

import os
import sys


def main(argv: list[str]) -> None:
    """Run the command that `argv` names."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
    command = argv[1] if len(argv) > 1 else ""
    if command == "simengine":
        from simulator.engine_server.command_line import main as simengine

        simengine(argv[2:])
    elif command == "replay":
        from controlplane.management.replay_command import main as replay

        sys.exit(replay(argv[2:]))
    elif command == "simulate":
        from simulator.command.simulate import main as simulate

        sys.exit(simulate(argv[2:], "manage.py simulate"))
    elif command == "node":
        from kvstore.node.command_line import main as node

        sys.exit(node(argv[2:]))
    elif command == "simulate_regions":
        from simulator.regions.simulate_regions import main as simulate_regions

        sys.exit(simulate_regions(argv[2:], "manage.py simulate_regions"))
    elif command == "simulate_sessions":
        from simulator.sessions.command import main as simulate_sessions

        sys.exit(simulate_sessions(argv[2:], "manage.py simulate_sessions"))
    else:
        from django.core.management import execute_from_command_line

        execute_from_command_line(argv)


if __name__ == "__main__":
    main(sys.argv)
