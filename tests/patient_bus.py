"""An end of the bus that takes no busy machine for a lost server; what ends a wait is tested by itself."""

from __future__ import annotations

from gateway.bus.redis_bus import RedisBus, RedisBusSettings
from gateway.bus.redis_link import LinkSettings
from kvstore.keys.keyring import Keyring
from tests.patience import PATIENCE_S

_SETTINGS = RedisBusSettings(wait_s=PATIENCE_S, link=LinkSettings(connect_s=PATIENCE_S, answer_s=PATIENCE_S))


def patient_bus(url: str, keyring: Keyring) -> RedisBus:
    """Return one more process's end of the bus at `url`."""
    return RedisBus(url, keyring, _SETTINGS)
