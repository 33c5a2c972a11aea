"""Entry of `manage.py simulate_sessions` in `manage.py help`."""

from controlplane.management.program_command import ProgramCommand


class Command(ProgramCommand):
    """Passes its arguments to simulator.sessions.command."""

    help = "Simulate sessions with several turns: simulate_sessions chat --system ours --users 256."
