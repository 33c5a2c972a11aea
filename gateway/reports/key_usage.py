"""Reports the last use of API keys to the control plane in batches, so that nothing is written per request."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from gateway.bus.bus import Bus
from gateway.contracts.wire import MIB, WireForm
from routing.values.counted import count

TOPIC = "key_usage"
"""Stream topic; values are encoded KeyLastUses."""
MAX_KEYS = 100_000
REPORTED_FOR_S = 60.0


class KeyLastUses(msgspec.Struct, frozen=True):
    """Key id → unix seconds of its last use, within about a minute."""

    at: dict[str, float]


class KeyUsage:
    """Reports each key's last use until it is a minute old.

    Mutable: one dict, used on the loop's thread. Keys are from the snapshot, so their number is bounded.
    """

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._clock = clock
        self._at: dict[str, float] = {}

    def note(self, key_id: str, unix_now: float) -> None:
        """Record a use."""
        self._at[key_id] = unix_now

    def report(self) -> None:
        """Report the uses of the last minute. Nothing is sent if there are none."""
        earliest = self._clock() - REPORTED_FOR_S
        # Sent again for a minute, so that a lost message loses no use.
        self._at = {key_id: at for key_id, at in self._at.items() if at > earliest}
        if self._at:
            self._bus.append(TOPIC, _uses.encode(KeyLastUses(self._at)))


def _problem(uses: KeyLastUses) -> str:
    keys = len(uses.at)
    return "" if keys <= MAX_KEYS else f"{count(keys, 'key is', 'keys are')} more than {MAX_KEYS}"


_uses = WireForm(KeyLastUses, "a list of key uses", limit=32 * MIB, problem=_problem)
decode_uses = _uses.decode
