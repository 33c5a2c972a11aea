"""The connection between one process's bus and the Redis server: a thread that reconnects forever."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass

from redis.exceptions import RedisError

from gateway.base.event_log import log_event
from gateway.bus.bus_frame import FrameSeal
from gateway.bus.bus_outbox import Outbox
from gateway.bus.bus_replica import BusReplica
from gateway.bus.redis_scripts import BusNames
from gateway.bus.redis_session import MovedError, Ports, RedisSession, client_maker
from kvstore.keys.keyring import Keyring

logger = logging.getLogger(__name__)
_jitter = random.Random()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Intervals of the connection, in seconds."""

    connect_s: float = 1.0
    answer_s: float = 2.0
    """A server that answers nothing for this long is disconnected, however open its connection is."""
    retry_min_s: float = 0.05
    retry_max_s: float = 1.0
    """Pause before the next attempt, doubled from the first value to the second."""
    compare_s: float = 2.0
    """Interval at which this process's copy and the server's are compared, which repairs losses."""


class RedisLink:
    """Owns the event loop of the bus's thread and one session at a time.

    `connected`, `changed_at`, `connections`, `rejected` and `unreadable` are written by that thread
    only; `tried` is set once the first attempt to connect has ended. Mutable state besides: the
    followed patterns and the session.
    """

    def __init__(
        self,
        url: str,
        keyring: Keyring,
        seal: FrameSeal,
        replica: BusReplica,
        outbox: Outbox,
        deliver: Callable[[str, bytes], object],
        settings: LinkSettings,
        *,
        max_topics: int,
        max_entries: int,
    ) -> None:
        self.connected = False
        self.changed_at = time.monotonic()
        self.connections = 0
        self.tried = threading.Event()
        self._settings = settings
        self._outbox = outbox
        self._make = client_maker(url, connect_s=settings.connect_s, answer_s=settings.answer_s)
        self._ports = Ports(keyring, seal, replica, outbox, deliver, max_topics, max_entries, settings.compare_s)
        self._loop = asyncio.new_event_loop()
        self._session: RedisSession | None = None
        self._patterns: dict[str, str] = {}
        self._work = asyncio.Event()
        self._stopping = False
        self._main: asyncio.Task[None] | None = None

    @property
    def names(self) -> BusNames:
        """Keys and channels of the installation on the server."""
        return self._ports.names

    @property
    def rejected(self) -> int:
        """Values and entries that the server had no room for."""
        return self._ports.rejected

    @property
    def unreadable(self) -> int:
        """Messages on our channels that are not ours."""
        return self._ports.unreadable

    @property
    def idle(self) -> bool:
        """Whether no item is queued or on its way."""
        session = self._session
        return len(self._outbox) == 0 and (session is None or not session.sending)

    def follows(self, pattern: str) -> bool:
        """Return whether `pattern` is followed already, connected or not."""
        return pattern in self._patterns

    def follow_soon(self, pattern: str) -> Future[None] | None:
        """Follow `pattern`; the future is done when its values are here. None: the thread has ended."""
        return self._schedule(self._follow(pattern))

    def wake(self) -> None:
        """Have the queued items sent."""
        with contextlib.suppress(RuntimeError):
            # The loop is closed: the process ends, and nothing is sent any more.
            self._loop.call_soon_threadsafe(self._work.set)

    def stop(self) -> None:
        """End the thread soon."""
        self._stopping = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)

    def run_in_thread(self) -> None:
        """Keep the connection until `stop`: the body of the bus's thread."""
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._run())
        finally:
            self.tried.set()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _schedule(self, work: Coroutine[None, None, None]) -> Future[None] | None:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            # Python warns of a coroutine that is never awaited.
            work.close()
            return None

    async def _run(self) -> None:
        self._main = asyncio.current_task()
        pause_s = self._settings.retry_min_s
        with contextlib.suppress(asyncio.CancelledError):
            while not self._stopping:
                before = self.connections
                reason = await self._live()
                self._lost(reason)
                if self.connections > before:
                    pause_s = self._settings.retry_min_s
                # Random, so that the processes do not all come back to the server at one moment.
                await asyncio.sleep(pause_s * _jitter.uniform(0.7, 1.0))
                pause_s = min(pause_s * 2, self._settings.retry_max_s)

    async def _live(self) -> str:
        """Connect and serve one session to its end; return why it ended."""
        session = RedisSession(self._make(), self._ports, self._patterns, self._work)
        try:
            await session.open()
            if self._stopping:
                # Its cancellation may have been swallowed, see redis_session.
                return "the bus is closed"
            self._session = session
            self._connected()
            await session.serve()
        except MovedError:
            return "the prefix of the installation's keys has changed"
        except (RedisError, OSError, TimeoutError) as error:
            return type(error).__name__
        except Exception as error:
            # The edge of the thread: a fault of ours must not leave the process without a bus for good.
            logger.exception("the bus session failed; the next one starts")
            return type(error).__name__
        finally:
            self._session = None
            await session.close()
            session.fail_questions()
        return "the session ended"

    def _connected(self) -> None:
        self.connected = True
        self.changed_at = time.monotonic()
        self.connections += 1
        self.tried.set()
        log_event("bus_connected", connections=self.connections, dropped=self._outbox.dropped)

    def _lost(self, reason: str) -> None:
        first = not self.tried.is_set()
        self.tried.set()
        if self.connected or first:
            self.connected = False
            self.changed_at = time.monotonic()
            log_event(
                "bus_lost",
                level=logging.WARNING,
                reason=reason,
                remedy="serving goes on with what is known; check the server that REDIS_URL names",
            )

    async def _follow(self, pattern: str) -> None:
        if pattern in self._patterns:
            return
        self._patterns[pattern] = ""
        if self._session is not None:
            try:
                await self._session.follow(pattern)
            except (RedisError, OSError, TimeoutError):
                # The session notices the same and ends; the next one follows all patterns.
                return
