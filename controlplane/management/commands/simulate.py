"""`manage.py simulate`, for `manage.py help`."""

from controlplane.management.program_command import ProgramCommand


class Command(ProgramCommand):
    """Hands its arguments to simulator.command.simulate."""

    help = "Run policies over a trace under a virtual clock: manage.py simulate TRACE --placement NAME --qps Q."
