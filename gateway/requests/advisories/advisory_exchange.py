"""Forwards advisories between gateways to the gateway that decides for a session's pool.

That gateway knows the sessions of all gateways from the requests that it decides (routing/chain/owner_decider.py). The
others forward advisories over the bus. A lost, late or overtaken advisory only loses its benefit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from gateway.base.event_log import log_event
from gateway.bus.bus import Bus, subscribe_on_loop
from gateway.contracts.advisory import (
    FORWARDED,
    PEER_TOPIC,
    TALLY_TOPIC,
    UNKNOWN,
    Advisory,
    PeerAdvisory,
    decode_peer,
    encode_peer,
    encode_tallies,
)
from gateway.contracts.wire import UnreadableMessageError
from gateway.requests.advisories.advisories import Advisories

SWEEP_S = 1.0
TALLY_TICKS = 2


class AdvisoryExchange:
    """One gateway's end of the exchange. Only the bus callback runs outside the event loop's thread."""

    def __init__(self, bus: Bus, advisories: Advisories, tag: str, wall: Callable[[], float] = time.time) -> None:
        self._bus, self.advisories, self._tag, self._wall = bus, advisories, tag, wall
        self._ticks = 0
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Subscribe to the other gateways' advisories."""
        self._unsubscribe = subscribe_on_loop(self._bus, PEER_TOPIC, self._take)

    def stop(self) -> None:
        """Cancel the subscription, and end prefetches."""
        self._unsubscribe()
        self.advisories.prefetches.stop()

    def tick(self) -> None:
        """End expired advisories, and publish counts to the console at intervals."""
        self.advisories.sweep()
        self._ticks += 1
        if self._ticks % TALLY_TICKS == 0:
            self._bus.publish(TALLY_TOPIC, encode_tallies(self.advisories.tallies()))

    def advise(self, advisory: Advisory) -> str:
        """Act on an advisory here, or forward it to the other gateways; return its state."""
        if self.advisories.decides(advisory):
            return self.advisories.advise(advisory)
        pool_id = self.advisories.pool_of(advisory)
        self._publish(advisory)
        self.advisories.tally.count(pool_id, advisory.tenant_id, advisory.source, FORWARDED)
        return FORWARDED if pool_id else UNKNOWN

    def withdraw(self, advisory: Advisory) -> bool:
        """End a session's advisory at the gateway that holds it; return whether this gateway held it."""
        stood = self.advisories.withdraw(advisory.tenant_id, advisory.session_id)
        if not stood:
            self._publish(advisory, withdrawn=True)
        return stood

    def _publish(self, advisory: Advisory, *, withdrawn: bool = False) -> None:
        self._bus.append(PEER_TOPIC, encode_peer(PeerAdvisory(self._tag, advisory, self._wall(), withdrawn)))

    def _take(self, value: bytes) -> None:
        try:
            message = decode_peer(value)
        except UnreadableMessageError as error:
            log_event("advisory_rejected", level=logging.WARNING, reason=str(error))
            return
        if message.sender == self._tag:
            return
        # The clocks of two machines may differ, so that an age could be negative.
        advisory, age_s = message.advisory, max(0.0, self._wall() - message.said_at)
        if message.withdrawn:
            self.advisories.withdraw(advisory.tenant_id, advisory.session_id, age_s)
        else:
            self.advisories.received(advisory, age_s)
