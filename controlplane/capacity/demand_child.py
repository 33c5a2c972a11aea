"""The child process that reads the demand from the request log: {"days": ...} in, a LoggedDemand or null out."""

from __future__ import annotations

import os
import sys
import time

import django
import msgspec

from simulator.child_task import OnShare, serve_task


def demand_of(task: bytes, progress: OnShare) -> object:
    """Return the demand of the last days; None if the log has no full quarter of an hour."""
    # Here, because models can be imported only after Django's set-up.
    from controlplane.capacity.demand import logged_demand

    demand = logged_demand(time.time(), msgspec.json.decode(task)["days"], progress)
    return demand if demand is not None and demand.regions else None


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
    django.setup()
    sys.exit(serve_task(sys.argv[1:], demand_of))
