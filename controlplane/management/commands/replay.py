"""Entry of `manage.py replay` in `manage.py help`."""

from controlplane.management.program_command import ProgramCommand


class Command(ProgramCommand):
    """Passes its arguments to simulator.replay."""

    help = "Replay a Mooncake trace against a gateway: replay TRACE --target URL --speed S."
