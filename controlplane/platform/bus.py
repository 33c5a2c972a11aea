"""The bus of this process, over which the control plane communicates with gateways."""

from __future__ import annotations

import functools
import os

from django.conf import settings

from gateway.bus.bus import Bus, InProcessBus

LOCAL_BUS = "LOCAL_BUS"
"""The environment variable in which `manage.py up` tells its children where its hub is."""


def bus_url() -> str:
    """Return where this process's bus is: Redis or the local hub; empty for a command that runs beside the program."""
    return settings.REDIS_URL or os.environ.get(LOCAL_BUS, "")


@functools.cache
def get_bus() -> Bus:
    """Return the process's one bus: over Redis or the local hub where there is one, else in memory."""
    url = bus_url()
    if not url:
        return InProcessBus()
    from gateway.bus.redis_bus import RedisBus

    return RedisBus(url, settings.FLEET_SECRET)


# A forked child has the bus object without the thread behind it, so that it needs one of its own.
os.register_at_fork(after_in_child=get_bus.cache_clear)
