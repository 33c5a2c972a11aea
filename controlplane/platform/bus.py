"""The bus on which this process communicates with gateways, and the secrets that protect it."""

from __future__ import annotations

import functools
import os
import time

from django.conf import settings

from gateway.bus.bus import Bus, InProcessBus
from kvstore.keys.keyring import FLEET, Keyring

LOCAL_BUS = "LOCAL_BUS"
"""The environment variable with which `manage.py up` passes the address of its hub to child processes."""


def bus_url() -> str:
    """Return the URL of this process's bus: Redis or the local hub; empty for a command that runs without them."""
    return settings.REDIS_URL or os.environ.get(LOCAL_BUS, "")


def fleet_keyring() -> Keyring:
    """Return the fleet's secrets. Each call returns the same object, because it counts acceptances by secret."""
    return keyring_of(settings.FLEET_SECRET, settings.FLEET_SECRET_ALSO, FLEET)


@functools.cache
def keyring_of(secret: bytes, also: bytes, kind: str) -> Keyring:
    """Return this process's keyring with these secrets."""
    return Keyring.of(secret, also, kind, time.time)


@functools.cache
def get_bus() -> Bus:
    """Return the only bus of this process: on Redis, on the local hub, or otherwise in memory."""
    url = bus_url()
    if not url:
        return InProcessBus()
    from gateway.bus.redis_bus import RedisBus

    return RedisBus(url, fleet_keyring())


# A forked child has the bus object without its thread, so that it needs one of its own.
os.register_at_fork(after_in_child=get_bus.cache_clear)
