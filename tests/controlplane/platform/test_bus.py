"""Each process has one bus: in memory, or over a server if it has the URL of one."""

from __future__ import annotations

import os
from pathlib import Path

from django.test import override_settings

from controlplane.platform.bus import get_bus
from gateway.bus.bus import Bus, InProcessBus
from gateway.bus.redis_bus import RedisBus
from kvstore.keys.keyring import Keyring
from tests.patience import wait_until
from tests.private_redis import patient_bus, private_redis


def test_process_has_one_bus(bus: Bus) -> None:
    bus.publish("t", b"1")
    assert get_bus().latest("t") == b"1"
    assert isinstance(bus, InProcessBus)


def test_with_a_redis_url_the_bus_is_shared(tmp_path: Path) -> None:
    with (
        private_redis(tmp_path) as server,
        override_settings(REDIS_URL=server.url, FLEET_SECRET=b"t", FLEET_SECRET_ALSO=b""),
    ):
        get_bus.cache_clear()
        ours, other = get_bus(), patient_bus(server.url, Keyring.of(b"t"))
        assert isinstance(ours, RedisBus)
        ours.publish("t", b"1")
        wait_until(lambda: other.latest("t") == b"1")
        ours.close()
        other.close()
    get_bus.cache_clear()


def test_forked_child_creates_its_own_bus(bus: Bus) -> None:
    bus.publish("t", b"of the parent")
    child = os.fork()
    if child == 0:
        os._exit(0 if get_bus().latest("t") is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert get_bus() is bus
