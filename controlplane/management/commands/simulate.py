"""Entry of `manage.py simulate` in `manage.py help`."""

from controlplane.management.program_command import ProgramCommand


class Command(ProgramCommand):
    """Passes its arguments to simulator.command.simulate."""

    help = "Run policies over a trace under a virtual clock: simulate TRACE --placement NAME --qps Q."
