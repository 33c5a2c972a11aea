"""Subscribes to an engine's event socket to receive the blocks of one text."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from controlplane.fleet.engine_url import bracketed
from controlplane.fleet.preflight.engine_flags import usual_ports
from gateway.pools.engines.vllm_adapter import KvEventSource
from kvstore.events.engine_block_map import EngineBlockMap
from kvstore.events.kv_events import BlockStored, UnreadableEventError, decode_batch, in_engine_memory

HANDSHAKE_S = 2.0
MAX_BATCH_BYTES = 16 << 20
MAX_BLOCKS = 100_000
_FRAMES = 3


class AnnouncedBlocks:
    """Tracks which of the wanted block keys were in events. Mutable state: everything received."""

    def __init__(self, seed: int, wanted: Sequence[int], block_tokens: int) -> None:
        self.events = 0
        """Number of BlockStored events received, for any text."""
        self.foreign_sizes: set[int] = set()
        """Block sizes in events that differ from the block size of the pool's keys, in tokens."""
        self.unreadable = 0
        self._seed = seed
        self._block_tokens = block_tokens
        self._missing = set(wanted)
        self._blocks = EngineBlockMap(MAX_BLOCKS)

    @property
    def complete(self) -> bool:
        """Return whether the engine stored every wanted block."""
        return not self._missing

    def take(self, payload: bytes) -> None:
        """Add one batch of events."""
        try:
            batch = decode_batch(payload, [])
        except UnreadableEventError:
            self.unreadable += 1
            return
        for event in batch.events:
            if not isinstance(event, BlockStored) or not in_engine_memory(event) or not event.is_dense:
                continue
            self.events += 1
            if event.block_size != self._block_tokens:
                self.foreign_sizes.add(event.block_size)
            self._missing.difference_update(self._blocks.stored(event, self._seed))


class EventSubscriber:
    """A subscription to one event socket, as an async context manager. With DEALER, it connects to a replay socket."""

    def __init__(self, endpoint: str, kind: int = zmq.SUB) -> None:
        self._endpoint = endpoint
        self._context = zmq.asyncio.Context(io_threads=1)
        self._socket: zmq.asyncio.Socket = self._context.socket(kind)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_BATCH_BYTES)
        self._socket.setsockopt(zmq.RCVHWM, 1000)
        if kind == zmq.SUB:
            self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._monitor: zmq.asyncio.Socket = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
        self._context.term()

    async def connect(self, timeout_s: float) -> bool:
        """Connect. Return False if no publisher responded in time."""
        self._socket.connect(self._endpoint)
        try:
            async with asyncio.timeout(timeout_s):
                parse_monitor_message(await self._monitor.recv_multipart())
        except TimeoutError:
            return False
        return True

    async def settle(self, seconds: float) -> None:
        """Wait until the subscription has reached the publisher."""
        await asyncio.sleep(seconds)

    async def receive(self, blocks: AnnouncedBlocks, timeout_s: float) -> None:
        """Receive events until all wanted blocks were seen or the time limit is reached."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not blocks.complete:
                    frames = await self._socket.recv_multipart()
                    if len(frames) == _FRAMES:
                        blocks.take(frames[-1])


async def sources_at_usual_ports(url: str, ranks: int) -> tuple[KvEventSource, ...]:
    """Return an engine's event sockets at the usual ports, if all its ranks publish there.

    Needed for vLLM before 0.31, which does not report them. A rank's ports are the ports of rank 0 plus the rank's
    number. The publisher may belong to another engine, so the preflight checks the blocks of a random text.
    """
    for events, replay in usual_ports(url):
        sources: list[KvEventSource] = []
        # A missing one ends the search there: behind a firewall each takes as long as a handshake may.
        while len(sources) < ranks and (source := await _source(url, events, replay, len(sources))):
            sources.append(source)
        if len(sources) == ranks:
            return tuple(sources)
    return ()


async def _source(url: str, events: int, replay: int, rank: int) -> KvEventSource | None:
    host = f"tcp://{bracketed(urlsplit(url).hostname or '')}"
    endpoint, replay_endpoint = f"{host}:{events + rank}", f"{host}:{replay + rank}"
    if not await _answers(endpoint, zmq.SUB):
        return None
    return KvEventSource(endpoint, replay_endpoint if await _answers(replay_endpoint, zmq.DEALER) else "", rank)


async def _answers(endpoint: str, kind: int) -> bool:
    try:
        # ZeroMQ would go on trying where no process listens.
        async with asyncio.timeout(HANDSHAKE_S):
            _, writer = await asyncio.open_connection(urlsplit(endpoint).hostname, urlsplit(endpoint).port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    async with EventSubscriber(endpoint, kind) as ear:
        return await ear.connect(HANDSHAKE_S)
