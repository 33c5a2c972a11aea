"""The child process that reads the demand: {"days": …} or {"minutes": …} in, a LoggedDemand or null out."""

from __future__ import annotations

import os
import sys
import time

import django
import msgspec

from simulator.child_task import OnShare, serve_task


def demand_of(task: bytes, progress: OnShare) -> object:
    """Return the demand of the last days by the quarter of an hour, or of the last minutes by the minute.

    None: the log has no full step.
    """
    # Here, because models can be imported only after Django's set-up.
    from controlplane.capacity.demand import MINUTE_S, STEP_S, logged_demand

    asked = msgspec.json.decode(task)
    minutes = asked.get("minutes")
    days, step_s = (minutes / 1440, MINUTE_S) if minutes else (asked["days"], STEP_S)
    demand = logged_demand(time.time(), days, progress, step_s)
    return demand if demand is not None and demand.regions else None


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
    django.setup()
    sys.exit(serve_task(sys.argv[1:], demand_of))
