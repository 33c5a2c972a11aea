"""Communication between the parts of Headway: last-value topics and stream topics.

gateway.bus.redis_bus replaces InProcessBus when there are several processes. Both give the same guarantees, and values
are bytes, so that nothing depends on shared memory.
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
"""A claim is remembered for this long at most, unless who claims says otherwise."""
_MAX_CLAIMS = 10_000

ResultT = TypeVar("ResultT")


class BusAwayError(ConnectionError):
    """No request can be sent now: the bus has lost its server."""


class Bus(Protocol):
    """Thread-safe publish and subscribe.

    Callbacks run in the publisher's thread, or in the bus's own for what another process published, and must return
    quickly.

    Subscribers may receive the values of two publishers that race on one topic in either order, so values carry a
    version or a time of their own.
    """

    @property
    def connected(self) -> bool:
        """Whether the server is connected now."""

    def publish(self, topic: str, value: bytes) -> None:
        """Make `value` the last value of `topic` and send it to its subscribers."""

    def latest(self, topic: str) -> bytes | None:
        """Return the last value of `topic`; None where nothing was published."""

    def append(self, topic: str, value: bytes) -> None:
        """Send a value to the subscribers of `topic`; nothing is kept."""

    def notify(self, topic: str, value: bytes) -> Future[int]:
        """Notify the present subscribers of `topic` and return their number; BusAwayError while unreachable."""

    def claim(self, name: str, holder: str, *, instead_of: str = "", seconds: float = CLAIM_S) -> Future[str]:
        """Return the holder of `name`: the first to claim it, or `holder` where it was free or held by `instead_of`.

        The claim ends after `seconds`; a holder that claims instead of itself restarts them. BusAwayError where the bus
        is unreachable.
        """

    def subscribe(self, topic: str, callback: Callback) -> Callable[[], None]:
        """Subscribe to `topic`, or all topics below a prefix ending in "/"; returns the call that ends it.

        Last values that exist are delivered before this returns.
        """


class InProcessBus:
    """The bus of a single process, which is always connected.

    Mutable state: `_latest` and `_claims`, under `_lock`, and the subscribers. Callbacks run outside the lock, so
    that one may publish or subscribe in its turn.
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
        """Return the last value of `topic`; None where nothing was published."""
        with self._lock:
            return self._latest.get(topic)

    def append(self, topic: str, value: bytes) -> None:
        """Send a value to the subscribers of `topic`; nothing is kept."""
        self._subscribers.deliver(topic, value)

    def notify(self, topic: str, value: bytes) -> Future[int]:
        """Notify the subscribers of `topic` and return their number."""
        return _done(self._subscribers.deliver(topic, value))

    def claim(self, name: str, holder: str, *, instead_of: str = "", seconds: float = CLAIM_S) -> Future[str]:
        """Return the holder of `name`; the oldest claims are forgotten."""
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
        """Subscribe to `topic`, or all topics below a prefix ending in "/"; returns the call that ends it."""
        with self._lock:
            # Both under the lock: a value published meanwhile is in `known` or delivered, perhaps both, never neither.
            unsubscribe = self._subscribers.add(topic, callback)
            known = [(name, value) for name, value in self._latest.items() if covers(topic, name)]
        for name, value in known:
            call(callback, name, value)
        return unsubscribe


def subscribe_on_loop(bus: Bus, topic: str, take: Callable[[bytes], None]) -> Callable[[], None]:
    """Subscribe to `topic` on the thread of the running event loop; returns the call that ends it."""
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
