"""The bus between Headway's parts: last-value topics and stream topics.

With several processes, gateway.bus.redis_bus replaces InProcessBus. Both give the same guarantees. Values are bytes, so
that nothing depends on shared memory.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from gateway.bus.bus_subscribers import Callback, Subscribers, call, covers

CLAIM_S = 300
"""Maximum lifetime of a claim in seconds, unless the claimer sets another."""
_MAX_CLAIMS = 10_000

ResultT = TypeVar("ResultT")


class BusAwayError(ConnectionError):
    """The request cannot be sent because the bus has lost its server."""


class Bus(Protocol):
    """Thread-safe publish and subscribe.

    Callbacks run in the publisher's thread, or in the bus's thread for values of other processes, and must return
    quickly.

    If two publishers race on one topic, subscribers can receive the values in either order, so values carry a version
    or a time.
    """

    @property
    def connected(self) -> bool:
        """Return whether the server is connected now."""

    def publish(self, topic: str, value: bytes) -> None:
        """Make `value` the last value of `topic` and send it to its subscribers."""

    def latest(self, topic: str) -> bytes | None:
        """Return the last value of `topic`, None if nothing was published."""

    def append(self, topic: str, value: bytes) -> None:
        """Send a value to the subscribers of `topic` without storing it."""

    def notify(self, topic: str, value: bytes) -> Future[int]:
        """Notify the current subscribers of `topic`; return their number. Raise BusAwayError while the server is
        unreachable.
        """

    def claim(self, name: str, holder: str, *, instead_of: str = "", seconds: float = CLAIM_S) -> Future[str]:
        """Return the holder of `name`. It becomes `holder` if the name is free or held by `instead_of`.

        The claim ends after `seconds`. A holder renews it by passing itself as `instead_of`. Raise BusAwayError if the
        server is unreachable.
        """

    def subscribe(self, topic: str, callback: Callback) -> Callable[[], None]:
        """Subscribe to `topic`, or to all topics below a prefix ending in "/"; return an unsubscribe function.

        Existing last values are delivered before this returns.
        """


class InProcessBus:
    """The bus of a single process, which is always connected.

    Mutable: `_latest` and `_claims`, under `_lock`, and the subscribers. Callbacks run outside the lock, so that they
    can publish or subscribe.
    """

    connected = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[str, bytes] = {}
        self._claims: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._subscribers = Subscribers()

    def publish(self, topic: str, value: bytes) -> None:
        """Make `value` the last value of `topic` and send it to its subscribers."""
        with self._lock:
            self._latest[topic] = value
        self._subscribers.deliver(topic, value)

    def latest(self, topic: str) -> bytes | None:
        """Return the last value of `topic`, None if nothing was published."""
        with self._lock:
            return self._latest.get(topic)

    def append(self, topic: str, value: bytes) -> None:
        """Send a value to the subscribers of `topic` without storing it."""
        self._subscribers.deliver(topic, value)

    def notify(self, topic: str, value: bytes) -> Future[int]:
        """Notify the subscribers of `topic`; return their number."""
        return _done(self._subscribers.deliver(topic, value))

    def claim(self, name: str, holder: str, *, instead_of: str = "", seconds: float = CLAIM_S) -> Future[str]:
        """Return the holder of `name`. Over the limit, the oldest claims are dropped."""
        now = time.monotonic()
        with self._lock:
            held, until = self._claims.get(name, ("", 0.0))
            if held in ("", instead_of) or until <= now:
                held = holder
                self._claims[name] = (holder, now + seconds)
                self._claims.move_to_end(name)
                if len(self._claims) > _MAX_CLAIMS:
                    self._claims.popitem(last=False)
        return _done(held)

    def subscribe(self, topic: str, callback: Callback) -> Callable[[], None]:
        """Subscribe to `topic`, or to all topics below a prefix ending in "/"; return an unsubscribe function."""
        with self._lock:
            # Both under the lock: a value published meanwhile is in `known` or delivered, perhaps both, never neither.
            unsubscribe = self._subscribers.add(topic, callback)
            known = [(name, value) for name, value in self._latest.items() if covers(topic, name)]
        for name, value in known:
            call(callback, name, value)
        return unsubscribe


def subscribe_on_loop(bus: Bus, topic: str, take: Callable[[bytes], None]) -> Callable[[], None]:
    """Subscribe to `topic`, with callbacks on the running event loop's thread; return an unsubscribe function."""
    loop = asyncio.get_running_loop()
    ended = threading.Event()

    def deliver(_topic: str, value: bytes) -> None:
        # A publisher's thread may still be on its way here when the subscription, and the loop with it, has ended.
        if not ended.is_set():
            loop.call_soon_threadsafe(take, value)

    unsubscribe = bus.subscribe(topic, deliver)

    def end() -> None:
        ended.set()
        unsubscribe()

    return end


def _done(result: ResultT) -> Future[ResultT]:
    future: Future[ResultT] = Future()
    future.set_result(result)
    return future
