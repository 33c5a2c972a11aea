"""`manage.py simulate_regions`, for `manage.py help`."""

from controlplane.management.program_command import ProgramCommand


class Command(ProgramCommand):
    """Hands its arguments to simulator.regions.simulate_regions."""

    help = "Compare routing policies of several regions: manage.py simulate_regions WORKLOAD --policy NAME."
