"""Publishes KV events over ZMQ as vLLM 0.32 does, and replays the last batches on demand.

PUB frames: topic, 8-byte big-endian sequence number from 0, msgpack batch. Replay (ROUTER): a DEALER sends [b"", start]
and receives [b"", topic, seq, payload] for each kept batch from `start`, followed by an end marker with sequence number
−1 and an empty payload.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence

import zmq

from kvstore.events.kv_events import EventBatch, KvEvent, encode_batch
from simulator.engine_server.settings import EngineSettings

MAX_BUFFER_BYTES = 16 * 1024 * 1024
"""Byte limit of the batches kept for replay; it is low because eight engines share one machine."""
_END = (-1).to_bytes(8, "big", signed=True)


class EventPortTakenError(RuntimeError):
    """A socket for KV events cannot be bound."""


class EventPublisher:
    """Numbers, publishes, and keeps batches. Does nothing without an events port."""

    def __init__(self, settings: EngineSettings) -> None:
        self._topic = settings.topic.encode()
        self._rank = settings.rank
        self._sequence = 0
        self._kept: deque[tuple[bytes, bytes]] = deque()
        self._kept_bytes = 0
        self._buffer_steps = settings.buffer_steps
        self._context = zmq.Context(io_threads=1)
        self._pub: zmq.Socket[bytes] | None = None
        self._replay: zmq.Socket[bytes] | None = None
        if settings.kv_events_port:
            self._pub = self._bind(zmq.PUB, settings.host, settings.kv_events_port)
        if settings.kv_replay_port:
            self._replay = self._bind(zmq.ROUTER, settings.host, settings.kv_replay_port)

    def publish(self, events: Sequence[KvEvent]) -> None:
        """Send the events as one batch."""
        if self._pub is None or not events:
            return
        payload = encode_batch(EventBatch(time.time(), list(events), self._rank))
        number = self._sequence.to_bytes(8, "big")
        self._sequence += 1
        self._keep(number, payload)
        # The engine does not wait for slow subscribers; what they miss, they ask to be replayed.
        self._pub.send_multipart((self._topic, number, payload), flags=zmq.NOBLOCK)

    def serve_replay(self, loop: asyncio.AbstractEventLoop) -> None:
        """Respond to replay requests on `loop` until `close`."""
        if self._replay is not None:
            loop.add_reader(self._replay.fileno(), self._answer_replays)

    def close(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Close both sockets at once; unsent batches are dropped."""
        if self._replay is not None:
            if loop is not None:
                loop.remove_reader(self._replay.fileno())
            self._replay.close(linger=0)
        if self._pub is not None:
            self._pub.close(linger=0)
        self._context.term()

    def _keep(self, number: bytes, payload: bytes) -> None:
        self._kept.append((number, payload))
        self._kept_bytes += len(payload)
        while len(self._kept) > self._buffer_steps or self._kept_bytes > MAX_BUFFER_BYTES:
            self._kept_bytes -= len(self._kept.popleft()[1])

    def _bind(self, kind: int, host: str, port: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        # A whole buffer and its end marker must fit, or ZMQ would silently drop the tail of a replay.
        socket.sndhwm = 2 * self._buffer_steps + 2
        try:
            socket.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            socket.close(linger=0)
            self.close()
            raise EventPortTakenError(
                f"cannot bind KV event port {host}:{port}: {error}; choose another port"
            ) from error
        return socket

    def _answer_replays(self) -> None:
        """Respond to all waiting requests. The descriptor is edge-triggered, so none can be left unread."""
        replay = self._replay
        if replay is None:
            return
        while int(replay.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            frames = replay.recv_multipart(flags=zmq.NOBLOCK)
            if len(frames) == 3 and not frames[1] and len(frames[2]) == 8:
                self._answer_replay(replay, frames[0], frames[2])

    def _answer_replay(self, replay: zmq.Socket[bytes], client: bytes, start: bytes) -> None:
        for number, payload in self._kept:
            # Big-endian numbers of one length compare as bytes do.
            if number >= start:
                replay.send_multipart((client, b"", self._topic, number, payload), flags=zmq.NOBLOCK)
        replay.send_multipart((client, b"", self._topic, _END, b""), flags=zmq.NOBLOCK)
