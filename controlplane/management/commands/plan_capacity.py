"""`manage.py plan_capacity`: the savings from sharing engines across regions, computed from the request log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError, CommandParser
from typing_extensions import override

from controlplane.capacity.demand import logged_demand
from controlplane.capacity.saving import (
    DAYS,
    MAX_DAYS,
    ON_DEMAND_PER_H,
    RESERVED_PER_H,
    UTILIZATION,
    InstallationPlan,
    Prices,
    installation_plan,
    range_words,
)


class Command(BaseCommand):
    """Prints the capacity plan."""

    help = "Compare the engines needed for each region's peak with those needed for the shared peak (docs/capacity.md)."
    requires_system_checks = ()

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("--days", type=float, default=DAYS, help=f"Days of the log to read, at most {MAX_DAYS}.")
        parser.add_argument(
            "--reserved", type=float, default=RESERVED_PER_H, help="Price of a reserved engine per hour."
        )
        parser.add_argument(
            "--on-demand", type=float, default=ON_DEMAND_PER_H, help="Price of an on-demand engine per hour."
        )
        parser.add_argument("--utilization", type=float, default=UTILIZATION, help="Planned utilization at the peak.")
        parser.add_argument("--json", type=Path, metavar="OUT", help="Also write the plan as JSON.")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Compute the plan from the log and print it."""
        if not 0 < options["days"] <= MAX_DAYS:
            raise CommandError(f"--days must be above 0 and at most {MAX_DAYS}.")
        asked = Prices(options["reserved"], options["on_demand"], options["utilization"], options["days"])
        demand = logged_demand(time.time(), asked.days)
        if demand is None or not demand.regions:
            raise CommandError("The request log has no full 15-minute interval yet. Send traffic and try again.")
        try:
            plan = installation_plan(demand, asked)
        except ValueError as error:
            raise CommandError(f"{error}.") from error
        self.stdout.write("\n".join(lines(plan)))
        if options["json"] is not None:
            options["json"].write_bytes(msgspec.json.format(msgspec.json.encode(plan.plan)) + b"\n")


def lines(installation: InstallationPlan) -> list[str]:
    """Return the plan as text."""
    plan = installation.plan
    rows = [
        f"{region:<20}{installation.present.get(region, 0):>9}{peak.own:>10.2f}{peak.at_shared_peak:>16.2f}"
        for region, peak in plan.regions.items()
    ]
    return [
        f"{installation.demand.requests:,} requests of {installation.span_s / 3600:.1f} h, in steps of 15 minutes",
        "",
        f"{'region':<20}{'engines':>9}{'own peak':>10}{'at shared peak':>16}",
        *rows,
        f"{'all':<20}{sum(installation.present.values()):>9}{plan.own_peaks:>10.2f}{plan.shared_peak:>16.2f}",
        "",
        f"saving              {plan.saving:.1%}; {range_words(plan.range)}",
        f"reserved, own peaks {plan.own_cost:>12,.2f} per hour",
        f"reserved, shared    {plan.shared_cost:>12,.2f} per hour",
        f"on demand, perfect  {plan.on_demand_cost:>12,.2f} per hour",
        f"cheapest mix        {plan.mixed_cost:>12,.2f} per hour, with {plan.mixed_reserved:.2f} reserved",
        *([installation.caveat] if installation.caveat else []),
    ]
