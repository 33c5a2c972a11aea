"""The bus of several processes over Redis. It keeps InProcessBus's guarantees while the server is down.

Values published here reach this process's subscribers immediately, in the publisher's thread. Values of other processes
arrive in the bus's thread. Only the first read of a topic waits for the server, for at most `wait_s`. After a
connection loss, each process continues with its copy. When the server returns, even empty, the processes fill it again.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any

from gateway.bus.bus import CLAIM_S
from gateway.bus.bus_outbox import BusQuestion, Outbox, Outgoing
from gateway.bus.bus_replica import BusReplica
from gateway.bus.bus_subscribers import Callback, Subscribers, call
from gateway.bus.redis_link import LinkSettings, RedisLink
from gateway.bus.redis_scripts import CLAIM
from gateway.bus.redis_session import Ports
from kvstore.keys.keyring import Keyring


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisBusSettings:
    """Limits of one process's bus."""

    wait_s: float = 2.0
    """Maximum seconds that the first read of a topic waits for the server."""
    close_s: float = 1.0
    """Maximum seconds that `close` waits for unsent items."""
    max_topics: int = 65_536
    max_entries: int = 10_000
    """Limit of stream entries queued here, and of entries that the server keeps per stream."""
    max_stream_bytes: int = 16 << 20
    """Limit of the bytes that the server keeps per stream. A process that was disconnected for too long misses older
    entries.
    """
    max_waiting_bytes: int = 64 << 20
    link: LinkSettings = field(default_factory=LinkSettings)


@dataclass(frozen=True, slots=True)
class BusState:
    """State of the bus: its connection and its losses."""

    connected: bool
    since_s: float
    """Monotonic seconds of the last change of `connected`."""
    connections: int
    """Number of successful connections. More than 1 means that the connection was lost in between."""
    dropped: int
    """Values and entries that did not fit into the queue or were rejected by the server."""
    unreadable: int
    """Messages on our channels that were published without the fleet secret. They are ignored."""


class RedisBus:
    """One process's end of the shared bus. All processes of an installation share a secret.

    Raise ValueError if `url` is no Redis URL. An unreachable server raises nothing: see `state`.
    """

    def __init__(
        self,
        url: str,
        keyring: Keyring,
        settings: RedisBusSettings | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings or RedisBusSettings()
        limits = self._settings
        self._replica = BusReplica(clock)
        self._subscribers = Subscribers()
        self._outbox = Outbox(limits.max_topics, limits.max_entries, limits.max_waiting_bytes, self._wake)
        self._ports = Ports(
            keyring,
            self._replica,
            self._outbox,
            self._subscribers.deliver,
            limits.max_topics,
            limits.max_entries,
            limits.max_stream_bytes,
        )
        self._link = RedisLink(url, self._ports, limits.link)
        self._thread = threading.Thread(target=self._link.run_in_thread, name="redis bus", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def state(self) -> BusState:
        """Return the current connection state and losses."""
        link, ports = self._link, self._ports
        dropped = self._outbox.dropped + ports.rejected
        return BusState(link.connected, link.changed_at, link.connections, dropped, ports.unreadable)

    @property
    def connected(self) -> bool:
        """Return whether the server is connected now."""
        return self._link.connected

    def publish(self, topic: str, value: bytes) -> None:
        """Make `value` the last value of `topic`, deliver it to subscribers here, and queue it for the server."""
        frame = self._replica.publish(topic, value)
        self._subscribers.deliver(topic, value)
        self._outbox.put(Outgoing(topic, frame, is_entry=False))

    def latest(self, topic: str) -> bytes | None:
        """Return the last value of `topic`, None if nothing was published or the server is unreachable."""
        self._follow(topic)
        return self._replica.value(topic)

    def append(self, topic: str, value: bytes) -> None:
        """Send an entry to the subscribers of `topic`, here and elsewhere.

        After a reconnect, subscribers receive the newest entries that they missed.
        """
        frame = self._replica.append(value)
        self._subscribers.deliver(topic, value)
        self._outbox.put(Outgoing(topic, frame, is_entry=True))

    def notify(self, topic: str, value: bytes) -> Future[int]:
        """Notify the current subscribers of `topic`; return their number. Raise BusAwayError without a server."""
        frame = self._replica.append(value)
        self._subscribers.deliver(topic, value)
        # No entry's id in front of it: the message is kept nowhere.
        data = b"\n%d%s" % (frame.version, self._ports.seal.tail("s", topic, frame))
        return self._ask("PUBLISH", self._ports.names.channel("s", topic), data)

    def claim(self, name: str, holder: str, *, instead_of: str = "", seconds: float = CLAIM_S) -> Future[str]:
        """Return the holder of `name`; raise BusAwayError while the server is away."""
        return self._ask("EVAL", CLAIM, 1, self._ports.names.claim(name), holder, instead_of, round(seconds * 1000))

    def subscribe(self, topic: str, callback: Callback) -> Callable[[], None]:
        """Subscribe to `topic`, or to all topics below a prefix ending in "/"; return an unsubscribe function.

        Last values are delivered before this returns if the server answers in time.
        """
        unsubscribe = self._subscribers.add(topic, callback)
        for name, value in self._replica.known(topic):
            call(callback, name, value)
        self._follow(topic)
        return unsubscribe

    def close(self) -> None:
        """Send the queued items for at most `close_s`, then end the thread. A second call is harmless."""
        atexit.unregister(self.close)
        deadline = time.monotonic() + self._settings.close_s
        # Items that were queued after an earlier close are never sent.
        if len(self._outbox) and self._thread.is_alive():
            self._link.tried.wait(self._settings.close_s)
        while self._thread.is_alive() and self._link.connected and not self._link.idle and time.monotonic() < deadline:
            time.sleep(0.005)
        self._link.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join(self._settings.close_s)

    def _ask(self, *command: str | int | bytes) -> Future[Any]:
        question = BusQuestion(command, Future())
        if self._link.connected:
            self._outbox.ask(question)
        else:
            question.fail()
        return question.answered

    def _wake(self) -> None:
        self._link.wake()

    def _follow(self, pattern: str) -> None:
        """Make the link follow `pattern`, and wait for its values unless the server is known to be away."""
        if self._link.follows(pattern):
            return
        if threading.current_thread() is self._thread:
            # A callback subscribes: the values come when the callback has returned.
            self._link.follow_soon(pattern)
            return
        deadline = time.monotonic() + self._settings.wait_s
        # Before the end of the first attempt it is not known whether the server is away.
        self._link.tried.wait(self._settings.wait_s)
        asked = self._link.follow_soon(pattern)
        if asked is not None and self._link.connected:
            with contextlib.suppress(TimeoutError, CancelledError):
                asked.result(max(0.0, deadline - time.monotonic()))
