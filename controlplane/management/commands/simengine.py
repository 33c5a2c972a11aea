"""Entry of `manage.py simengine` in `manage.py help`."""

from controlplane.management.program_command import ProgramCommand


class Command(ProgramCommand):
    """Passes its arguments to simulator.engine_server."""

    help = "Run one simulated engine that speaks vLLM's HTTP API: simengine --port PORT."
