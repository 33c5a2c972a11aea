"""Receives one engine's KV events over ZMQ, and requests missed ones.

Frames of a live message are topic, batch number (8 bytes, big-endian) and payload. A ROUTER socket serves the history:
a DEALER sends an empty frame and the number to start from, and receives batches until one numbered −1. Number and
payload are the last two frames, whatever precedes them (vLLM up to 0.25.1 sends no topic here).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from gateway.base.event_log import log_event
from gateway.base.settings import EventSettings
from gateway.pools.events.event_ledger import DEGRADED, EventLedger, Trust
from gateway.pools.traffic.past_moments import PastMoments

_SEQ_BYTES = 8
_END = b"\xff" * _SEQ_BYTES
_YIELD_EVERY = 32
"""Batches after which the event loop runs other tasks, so that a backlog does not delay requests."""
_SILENT_AFTER = 2
"""Unanswered replays after which trust drops in an engine that has answered before."""


class KvEventIntake:
    """Connects one engine's event sockets to its ledger. `run` is the task; `on_trust` is called when trust changes.

    Mutable: the number of consecutive `_unanswered` replays, the time of the last message, `_reported` trust.
    """

    def __init__(
        self,
        engine_id: str,
        endpoint: str,
        replay_endpoint: str,
        ledger: EventLedger,
        context: zmq.asyncio.Context,
        settings: EventSettings,
        on_trust: Callable[[], None],
    ) -> None:
        for name in filter(None, (endpoint, replay_endpoint)):
            if not name.startswith("tcp://"):
                raise ValueError(f"event endpoint {name!r} of {engine_id} must start with tcp://")
        self.engine_id = engine_id
        self.ledger = ledger
        self._endpoint = endpoint
        self._replay_endpoint = replay_endpoint
        self._context = context
        self._settings = settings
        self._on_trust = on_trust
        self._needed = asyncio.Event()
        self._unanswered = 0
        self._received_at = time.monotonic()
        self.received = PastMoments()
        self._reported = self.trust

    @property
    def trust(self) -> Trust:
        """Return the current trust in this engine's index."""
        trust = self.ledger.trust
        if self._unanswered >= _SILENT_AFTER and trust.weight > 0.5:
            return Trust(DEGRADED, "the event socket does not answer")
        return trust

    def resync(self) -> None:
        """Clear this engine's history and request it again from the start."""
        self.ledger.resync()
        self._after_input()

    async def run(self) -> None:
        """Receive and replay events until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen(), name=f"events of {self.engine_id}")
            tasks.create_task(self._keep_whole(), name=f"replays of {self.engine_id}")

    async def _listen(self) -> None:
        socket = self._socket(zmq.SUB)
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        watch = asyncio.create_task(self._watch_connection(monitor))
        try:
            socket.connect(self._endpoint)
            received = 0
            while True:
                self._take_live(await socket.recv_multipart())
                received += 1
                if received % _YIELD_EVERY == 0:
                    await asyncio.sleep(0)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            socket.disable_monitor()
            monitor.close(linger=0)
            socket.close(linger=0)

    async def _watch_connection(self, monitor: zmq.asyncio.Socket) -> None:
        while True:
            parse_monitor_message(await monitor.recv_multipart())
            self.ledger.disconnected()
            self._after_input()

    def _take_live(self, frames: list[bytes]) -> None:
        if len(frames) != 3 or len(frames[1]) != _SEQ_BYTES:
            self.ledger.counts["unreadable"] += 1
            return
        self._received_at = time.monotonic()
        self.received.note(self._received_at)
        self.ledger.live(int.from_bytes(frames[1], "big"), frames[2])
        if self.ledger.wanted and not self._replay_endpoint:
            # Without a replay socket, missed events are lost for good.
            self.ledger.give_up()
        self._after_input()

    async def _keep_whole(self) -> None:
        """Run a replay if history is needed. After a silence, request the last batch as a sign of life."""
        pause_s = self._settings.retry_min_s
        while self._replay_endpoint:
            if not self.ledger.wanted:
                pause_s = self._settings.retry_min_s
                await self._sleep_until_needed()
            answered = await self._replay()
            self._after_input()
            if self.ledger.wanted:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, self._settings.retry_max_s)
            elif not answered:
                await asyncio.sleep(self._settings.retry_max_s)

    async def _sleep_until_needed(self) -> None:
        """Return when a replay is needed or no event has arrived for a while."""
        while not self.ledger.wanted:
            silent_s = time.monotonic() - self._received_at
            if silent_s >= self._settings.verify_after_s:
                return
            self._needed.clear()
            try:
                async with asyncio.timeout(self._settings.verify_after_s - silent_s):
                    await self._needed.wait()
            except TimeoutError:
                continue

    async def _replay(self) -> bool:
        """Run one replay. Return False if it was not answered completely."""
        # A new socket for each replay, so that no late answer mixes with the next.
        socket = self._socket(zmq.DEALER)
        try:
            socket.connect(self._replay_endpoint)
            start = self.ledger.start_replay()
            async with asyncio.timeout(self._settings.replay_timeout_s) as limit:
                await socket.send_multipart([b"", start.to_bytes(_SEQ_BYTES, "big")])
                await self._take_replay(socket, limit)
        except TimeoutError:
            self.ledger.abandon_replay()
            self._unanswered += 1
            if self._unanswered == _SILENT_AFTER:
                log_event("kv_replay_unanswered", level=logging.WARNING, engine=self.engine_id)
            return False
        finally:
            socket.close(linger=0)
        self._unanswered = 0
        self._received_at = time.monotonic()
        self.received.note(self._received_at)
        return True

    async def _take_replay(self, socket: zmq.asyncio.Socket, limit: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        count = 0
        while True:
            frames = await socket.recv_multipart()
            if len(frames) < 2 or len(frames[-2]) != _SEQ_BYTES:
                self.ledger.counts["unreadable"] += 1
                continue
            if frames[-2] == _END:
                self.ledger.end_replay()
                return
            if not self.ledger.replayed(int.from_bytes(frames[-2], "big"), frames[-1]):
                return
            count += 1
            if count % _YIELD_EVERY == 0:
                # The limit is on silence, not on the whole replay.
                limit.reschedule(loop.time() + self._settings.replay_timeout_s)
                await asyncio.sleep(0)

    def _after_input(self) -> None:
        if self.ledger.wanted:
            self._needed.set()
        trust = self.trust
        if trust != self._reported:
            self._reported = trust
            self._on_trust()

    def _socket(self, kind: int) -> zmq.asyncio.Socket:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, self._settings.max_batch_bytes)
        socket.setsockopt(zmq.RCVHWM, 10_000)
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        # Without heartbeats, a connection that breaks silently is never reported as disconnected.
        socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 4000)
        return socket
