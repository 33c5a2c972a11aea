"""The connection of one process's bus to the Redis server: a thread that reconnects until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass

from redis.exceptions import RedisError

from gateway.base.event_log import log_event
from gateway.bus.redis_session import MovedError, Ports, RedisSession, client_maker

logger = logging.getLogger(__name__)
_jitter = random.Random()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Intervals of the connection, in seconds."""

    connect_s: float = 1.0
    answer_s: float = 2.0
    """A server without any answer for this long is disconnected, even if its connection is open."""
    retry_min_s: float = 0.05
    retry_max_s: float = 1.0
    """Maximum pause before the next attempt. The pause doubles up to this value."""
    compare_s: float = 2.0
    """Interval of comparisons between this process's copy and the server's, which repair losses."""


class RedisLink:
    """Owns the event loop of the bus's thread and one session at a time.

    Only that thread writes `connected`, `changed_at` and `connections`. `tried` is set after the first connection
    attempt has ended. Also mutable: the followed patterns and the session.
    """

    def __init__(self, url: str, ports: Ports, settings: LinkSettings) -> None:
        self.ports = ports
        self.connected = False
        self.changed_at = time.monotonic()
        self.connections = 0
        self.tried = threading.Event()
        self._settings = settings
        self._make = client_maker(url, connect_s=settings.connect_s, answer_s=settings.answer_s)
        self._loop = asyncio.new_event_loop()
        self._session: RedisSession | None = None
        self._patterns: dict[str, str] = {}
        self._work = asyncio.Event()
        self._stopping = False
        self._main: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Return whether no item is queued or being sent."""
        session = self._session
        return len(self.ports.outbox) == 0 and (session is None or not session.sending)

    def follows(self, pattern: str) -> bool:
        """Return whether `pattern` is already followed, connected or not."""
        return pattern in self._patterns

    def follow_soon(self, pattern: str) -> Future[None] | None:
        """Follow `pattern`. The returned future is done when its values have arrived; None: the thread has ended."""
        return self._schedule(self._follow(pattern))

    def wake(self) -> None:
        """Wake the thread to send the queued items."""
        with contextlib.suppress(RuntimeError):
            # The loop is closed: the process ends, and nothing is sent any more.
            self._loop.call_soon_threadsafe(self._work.set)

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stopping = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)

    def run_in_thread(self) -> None:
        """Keep the connection until `stop`; runs in the bus's thread."""
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
        """Connect and serve one session until it ends; return the reason."""
        session = RedisSession(self._make(), self.ports, self._patterns, self._work, self._settings.compare_s)
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
        log_event("bus_connected", connections=self.connections, dropped=self.ports.outbox.dropped)

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
                remedy="serving continues from the last known state; check the server in REDIS_URL, or log/bus.log",
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
