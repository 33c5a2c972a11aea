"""The bus on which this process communicates with gateways, and the secrets that protect it."""

from __future__ import annotations

import functools
import os
import time

from django.conf import settings

from gateway.bus.bus import Bus, InProcessBus
from kvstore.keys.keyring import FLEET, Keyring

LOCAL_BUS = "LOCAL_BUS"
"""The environment variable with which `manage.py up` passes the URL of its bus server to child processes."""
URL_FILE = "bus.url"
"""File in the state directory with which `manage.py up` passes that URL to commands."""


def bus_url() -> str:
    """Return the URL of this process's bus: REDIS_URL or the local server; empty for a command without either."""
    return settings.REDIS_URL or os.environ.get(LOCAL_BUS, "")


def broker_url() -> str:
    """Return the URL of the bus's server as Celery writes it."""
    url = bus_url()
    return url.replace("unix://", "redis+socket://", 1).replace("?db=", "?virtual_host=", 1)


def server_of_broker(url: str) -> str:
    """Return the URL of a server that Celery writes as `url`."""
    return url.replace("redis+socket://", "unix://", 1).replace("?virtual_host=", "?db=", 1)


def join_running() -> bool:
    """Return whether this process has a shared bus. If necessary, join the bus of `manage.py up` on our state
    directory.
    """
    if bus_url():
        return True
    try:
        os.environ[LOCAL_BUS] = (settings.STATE_DIR / URL_FILE).read_text()
    except FileNotFoundError:
        return False
    # This process may have made a bus in its memory, before the URL was known.
    get_bus.cache_clear()
    return True


def fleet_keyring() -> Keyring:
    """Return the fleet's secrets. Each call returns the same object, because it counts acceptances by secret."""
    return keyring_of(settings.FLEET_SECRET, settings.FLEET_SECRET_ALSO, FLEET)


@functools.cache
def keyring_of(secret: bytes, also: bytes, kind: str) -> Keyring:
    """Return this process's keyring with these secrets."""
    return Keyring.of(secret, also, kind, time.time)


@functools.cache
def get_bus() -> Bus:
    """Return the only bus of this process: on a server, or in memory for a command without one."""
    url = bus_url()
    if not url:
        return InProcessBus()
    from gateway.bus.redis_bus import RedisBus

    return RedisBus(url, fleet_keyring())


def close_bus() -> None:
    """Send what this process has queued for the bus's server, if it has one, and disconnect."""
    from gateway.bus.redis_bus import RedisBus

    if isinstance(bus := get_bus(), RedisBus):
        bus.close()


# A forked child has the bus object without its thread, so that it needs one of its own.
os.register_at_fork(after_in_child=get_bus.cache_clear)
