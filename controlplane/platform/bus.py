"""The bus of this process, over which the control plane talks to the live wing."""

from __future__ import annotations

import functools
import os

from django.conf import settings

from gateway.bus.bus import Bus, InProcessBus


@functools.cache
def get_bus() -> Bus:
    """Return the process's one bus: over Redis or the local hub where settings name one, else in memory."""
    if not settings.BUS_URL:
        return InProcessBus()
    from gateway.bus.redis_bus import RedisBus

    return RedisBus(settings.BUS_URL, settings.FLEET_SECRET)


# A forked child has the bus object without the thread behind it, so that it needs one of its own.
os.register_at_fork(after_in_child=get_bus.cache_clear)
