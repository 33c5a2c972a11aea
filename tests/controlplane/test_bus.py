"""One bus per process, and none that only pretends to be shared."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from controlplane.bus import get_bus
from gateway.bus import Bus


def test_the_process_has_one_bus(bus: Bus) -> None:
    bus.publish("t", b"1")
    assert get_bus().latest("t") == b"1"


def test_a_shared_bus_that_does_not_exist_is_refused() -> None:
    get_bus.cache_clear()
    with override_settings(REDIS_URL="redis://r"), pytest.raises(ImproperlyConfigured, match="REDIS_URL"):
        get_bus()
