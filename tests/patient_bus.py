"""A bus connection with long timeouts, so that a busy machine is not mistaken for a lost server."""

from __future__ import annotations

from gateway.bus.redis_bus import RedisBus, RedisBusSettings
from gateway.bus.redis_link import LinkSettings
from kvstore.keys.keyring import Keyring
from tests.patience import PATIENCE_S

_SETTINGS = RedisBusSettings(wait_s=PATIENCE_S, link=LinkSettings(connect_s=PATIENCE_S, answer_s=PATIENCE_S))


def patient_bus(url: str, keyring: Keyring) -> RedisBus:
    """Return a bus connection of a further process at `url`."""
    return RedisBus(url, keyring, _SETTINGS)
