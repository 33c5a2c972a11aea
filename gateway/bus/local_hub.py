"""Server of a bus between one machine's processes without Redis: a Unix socket and a thread.

It implements the part of Redis's protocol that the bus uses, so that gateway.bus.redis_bus is the client of both. It
stores nothing on disk: processes fill a new hub again, as after the loss of a Redis server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path
from urllib.parse import quote

from typing_extensions import override

from gateway.base.event_log import log_event
from gateway.bus.hub_store import HubStore, Message
from gateway.bus.redis_scripts import APPEND, CLAIM, PUBLISH
from gateway.bus.resp import MAX_COMMAND_BYTES, OK, Answer, NoCommandError, encode, encode_error, read_command

MAX_UNSENT_BYTES = 64 << 20
"""A client that does not read is disconnected at this limit. It reconnects and catches up."""
_STOP_S = 2.0


def hub_url(path: Path) -> str:
    """Return the URL under which RedisBus reaches the hub at this path."""
    return f"unix://{quote(str(path))}"


class LocalHub:
    """A hub at a socket path that only its owner can open. Mutable: the thread and its loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="local bus", daemon=True)
        self._hub = _Hub()
        self._listener: socket.socket | None = None
        self._stop = asyncio.Event()

    def start(self) -> None:
        """Listen at the path, replacing a hub that was killed; raise OSError if the path is unusable."""
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._path))
        # Before listen(): until then, no process can connect.
        self._path.chmod(0o600)
        self._listener.listen(128)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and all connections. A second call is harmless."""
        with contextlib.suppress(RuntimeError):
            # RuntimeError: the thread has ended and closed its loop.
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread.is_alive():
            self._thread.join(_STOP_S)
        self._path.unlink(missing_ok=True)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await self._loop.create_unix_server(lambda: _Connection(self._hub), sock=self._listener)
        try:
            await self._stop.wait()
        finally:
            server.close()
            self._hub.end()
            # One turn of the loop closes the aborted connections.
            await asyncio.sleep(0)


class _Hub:
    """State of all connections. Mutable: the store, the connections, and the subscribers of each channel."""

    def __init__(self) -> None:
        self.store = HubStore(time.time)
        self.connections: set[_Connection] = set()
        self._channels: dict[bytes, dict[_Connection, None]] = {}
        self._patterns: dict[bytes, dict[_Connection, None]] = {}

    def subscribe(self, connection: _Connection, name: bytes, *, is_pattern: bool) -> None:
        table = self._patterns if is_pattern else self._channels
        table.setdefault(_prefix(name) if is_pattern else name, {})[connection] = None

    def publish(self, message: Message) -> int:
        """Send the message to its channel's subscribers; return their number."""
        channel, data = message
        subscribers = list(self._channels.get(channel, ()))
        if subscribers:
            _send_all(subscribers, encode([b"message", channel, data]))
        for prefix, connections in self._patterns.items():
            if channel.startswith(prefix):
                _send_all(list(connections), encode([b"pmessage", prefix + b"*", channel, data]))
                subscribers += connections
        return len(subscribers)

    def forget(self, connection: _Connection) -> None:
        self.connections.discard(connection)
        for table in (self._channels, self._patterns):
            for name in [name for name, connections in table.items() if connection in connections]:
                del table[name][connection]
                if not table[name]:
                    del table[name]

    def end(self) -> None:
        for connection in list(self.connections):
            connection.abort()


class _Connection(asyncio.Protocol):
    """One client connection. Mutable: the bytes of an incomplete command, and the number of subscriptions."""

    def __init__(self, hub: _Hub) -> None:
        self._hub = hub
        self._buffer = bytearray()
        self._subscriptions = 0
        self._transport: asyncio.Transport | None = None
        self._commands: dict[bytes, Callable[[list[bytes]], bytes]] = {
            b"PING": self._ping,
            b"CLIENT": lambda _: OK,
            b"SCRIPT": lambda words: encode(sha1(words[2]).hexdigest().encode()),  # noqa: S324 - names a script
            b"EVALSHA": self._script,
            b"EVAL": self._script,
            b"PUBLISH": lambda words: encode(self._hub.publish((words[1], words[2]))),
            b"SUBSCRIBE": self._subscribe,
            b"PSUBSCRIBE": self._subscribe,
            b"HGETALL": lambda words: encode([part for field in self._hash(words[1]).items() for part in field]),
            b"HMGET": lambda words: encode([self._hash(words[1]).get(field) for field in words[2:]]),
            b"SMEMBERS": lambda words: encode([*self._hub.store.members(words[1])]),
            b"XRANGE": self._range,
            b"TIME": lambda _: encode([b"%d" % part for part in self._hub.store.time()]),
        }

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # a stream's
        self._transport = transport
        self._hub.connections.add(self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._hub.forget(self)

    @override
    def data_received(self, data: bytes) -> None:
        self._buffer += data
        at, answers = 0, []
        try:
            while (read := read_command(self._buffer, at)) is not None:
                words, at = read
                answers.append(self._answer(words))
            # Once per read instead of once per command, because it moves all bytes behind.
            del self._buffer[:at]
            if len(self._buffer) > MAX_COMMAND_BYTES:
                raise NoCommandError("a command is over the limit")
        except NoCommandError as error:
            log_event("local_bus_client_rejected", level=logging.WARNING, reason=str(error))
            self.abort()
            return
        self.send(b"".join(answers))

    def send(self, data: bytes) -> None:
        """Send bytes. A client that does not read is disconnected."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            transport.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _answer(self, words: list[bytes]) -> bytes:
        name = words[0].upper()
        command = self._commands.get(name)
        if command is None:
            return encode_error(f"ERR unknown command '{name[:32].decode('ascii', errors='replace')}'")
        try:
            return command(words)
        except (IndexError, ValueError, OverflowError) as error:
            return encode_error(f"ERR wrong arguments ({type(error).__name__})")

    def _ping(self, _words: list[bytes]) -> bytes:
        # In RESP 2, a connection with subscriptions gets the answer as a message.
        return encode([b"pong", b""]) if self._subscriptions else b"+PONG\r\n"

    def _hash(self, key: bytes) -> dict[bytes, bytes]:
        return self._hub.store.hash(key)

    def _subscribe(self, words: list[bytes]) -> bytes:
        kind, is_pattern = words[0].lower(), words[0].upper() == b"PSUBSCRIBE"
        answers = []
        for name in words[1:]:
            self._hub.subscribe(self, name, is_pattern=is_pattern)
            self._subscriptions += 1
            answers.append(encode([kind, name, self._subscriptions]))
        return b"".join(answers)

    def _range(self, words: list[bytes]) -> bytes:
        entries: list[Answer] = [
            [entry_id, [b"frame", frame]]
            for entry_id, frame in self._hub.store.entries_after(words[1], words[2].removeprefix(b"("))
        ]
        return encode(entries)

    def _script(self, words: list[bytes]) -> bytes:
        """Run one of the bus's three scripts, named by its text or the text's digest."""
        name = sha1(words[1]).hexdigest().encode() if words[0].upper() == b"EVAL" else words[1]  # noqa: S324 - a name
        count = int(words[2])
        keys, arguments = words[3 : 3 + count], words[3 + count :]
        if name == _CLAIM:
            return encode(self._hub.store.claim(keys[0], arguments[0], arguments[1], int(arguments[2])))
        run = {_PUBLISH: self._hub.store.publish, _APPEND: self._hub.store.append}.get(name)
        if run is None:
            return encode_error("NOSCRIPT this hub runs the scripts of the bus only")
        answer, message = run(keys, arguments)
        if message is not None:
            self._hub.publish(message)
        return encode(answer)


_PUBLISH, _APPEND, _CLAIM = (
    sha1(script.encode()).hexdigest().encode()  # noqa: S324 - names a script, as Redis does
    for script in (PUBLISH, APPEND, CLAIM)
)


def _send_all(connections: list[_Connection], data: bytes) -> None:
    for connection in connections:
        connection.send(data)


def _prefix(pattern: bytes) -> bytes:
    """Return the prefix in a channel pattern; raise ValueError unless it is a prefix followed by a star."""
    if not pattern.endswith(b"*"):
        raise ValueError("a pattern must end in a star")
    return re.sub(rb"\\(.)", rb"\1", pattern[:-1], flags=re.DOTALL)
