"""Entry of `manage.py simulate_regions` in `manage.py help`."""

from controlplane.management.program_command import ProgramCommand


class Command(ProgramCommand):
    """Passes its arguments to simulator.regions.simulate_regions."""

    help = "Compare routing policies of several regions: simulate_regions WORKLOAD --policy NAME."
