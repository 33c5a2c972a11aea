"""`manage.py simulate_regions`, for `manage.py help`; manage.py itself dispatches it without Django."""

from __future__ import annotations

from typing_extensions import override

from controlplane.management.program_command import ProgramCommand


class Command(ProgramCommand):
    """Hands its arguments to simulator.regions.simulate_regions unread."""

    help = "Compare routing policies of several regions: manage.py simulate_regions WORKLOAD --policy NAME."

    @override
    def program(self, arguments: list[str]) -> int | None:
        """Run it; the import waits until then."""
        from simulator.regions.simulate_regions import main

        return main(arguments, "manage.py simulate_regions")
