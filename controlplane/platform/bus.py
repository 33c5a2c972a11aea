"""The bus of this process, over which the control plane communicates with gateways, and the secrets that protect it."""

from __future__ import annotations

import functools
import os
import time

from django.conf import settings

from gateway.bus.bus import Bus, InProcessBus
from kvstore.keys.keyring import FLEET, Keyring

LOCAL_BUS = "LOCAL_BUS"
"""The environment variable by which `manage.py up` gives its children the address of its hub."""


def bus_url() -> str:
    """Return the URL of this process's bus: Redis or the local hub; empty for a command outside the program."""
    return settings.REDIS_URL or os.environ.get(LOCAL_BUS, "")


def fleet_keyring() -> Keyring:
    """Return the fleet's secrets; the same object each time, because it counts acceptances by secret."""
    return keyring_of(settings.FLEET_SECRET, settings.FLEET_SECRET_ALSO, FLEET)


@functools.cache
def keyring_of(secret: bytes, also: bytes, kind: str) -> Keyring:
    """Return this process's keyring of these secrets."""
    return Keyring.of(secret, also, kind, time.time)


@functools.cache
def get_bus() -> Bus:
    """Return the process's one bus: over Redis or the local hub if there is one, else in memory."""
    url = bus_url()
    if not url:
        return InProcessBus()
    from gateway.bus.redis_bus import RedisBus

    return RedisBus(url, fleet_keyring())


# A forked child has the bus object without its thread, so that it needs one of its own.
os.register_at_fork(after_in_child=get_bus.cache_clear)
