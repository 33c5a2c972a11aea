"""One connection between a node and a client: frames in both directions, payloads without copies in this process."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Iterator, Sequence

import xxhash

from kvstore.keys.keyring import Keys
from kvstore.transfer.frames import (
    HEAD_BYTES,
    Challenge,
    FrameError,
    Hello,
    Message,
    Welcome,
    decode,
    decode_head,
    encode,
)
from kvstore.transfer.handshake import NONCE_BYTES, HandshakeError, client_proof, proves, server_proof

_CHUNK = 256 << 10
"""Bytes hashed at a time, while the kernel receives the next ones."""
_BUFFER = 4 << 20
_MAX_PARTS = 512


class PeerError(ConnectionError):
    """The peer is gone, too slow, lacks the secret, or sent an invalid frame."""


class Connection:
    """For one thread at a time, except `wake` and `cut`.

    Methods raise PeerError if the connection is no longer usable.
    """

    def __init__(
        self, sock: socket.socket, timeout_s: float | None = None, clock: Callable[[], float] = lambda: -math.inf
    ) -> None:
        """Wrap a socket.

        Without `timeout_s`, calls wait until another thread closes the connection (TransferServer.close_late).
        """
        self._socket, self._clock, self._is_cut = sock, clock, False
        self.deadline = math.inf
        """Deadline of the handshake or frame in progress, however many pieces it arrives in."""
        with contextlib.suppress(OSError):
            # Frames are requests and answers, which must not wait for further bytes.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if timeout_s is not None:
            self._set_timeout(timeout_s)

    def _set_timeout(self, seconds: float) -> None:
        """Limit the wait for the peer in each call.

        Without TLS, this avoids the extra poll per call of `settimeout`.
        """
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                # OpenSSL retries a read that the kernel's own timeout ended.
                self._socket.settimeout(seconds)
                return
            # A `struct timeval`: seconds and microseconds.
            limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        except OSError as error:
            raise PeerError(str(error)) from error

    def send(self, message: Message, payload: Sequence[memoryview] = ()) -> None:
        """Send a frame. The payload's parts are sent without a copy."""
        parts = [memoryview(encode(message, sum(map(len, payload)))), *payload]
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                # A TLS socket cannot send several buffers at once.
                for part in parts:
                    self._socket.sendall(part)
            else:
                self._send_parts(parts)
        except OSError as error:
            raise PeerError(f"cannot send: {error}") from error

    def receive(self, *, greeting: bool = False) -> tuple[Message, int]:
        """Return the next message and the size of its payload in bytes."""
        head = bytearray(HEAD_BYTES)
        self.receive_into(memoryview(head))
        try:
            body_bytes, payload_bytes = decode_head(head, greeting=greeting)
            body = bytearray(body_bytes)
            self.receive_into(memoryview(body))
            return decode(body, payload_bytes), payload_bytes
        except FrameError as error:
            raise PeerError(str(error)) from error

    def receive_into(self, view: memoryview) -> None:
        """Fill a view."""
        done = 0
        try:
            while done < len(view):
                count = self._socket.recv_into(view[done:], 0, self._flags)
                if not count:
                    raise PeerError("the peer closed the connection")
                done += count
                # Checked per piece: a peer that sends single bytes never runs into the timeout of a call.
                if done < len(view) and self._clock() >= self.deadline:
                    raise PeerError("the peer is too slow")
        except OSError as error:
            raise error if isinstance(error, PeerError) else PeerError(f"cannot receive: {error}") from error

    def receive_payload(self, view: memoryview, digest: xxhash.xxh3_128 | None = None) -> bytes:
        """Fill a view and return the checksum of its bytes, hashed while later bytes arrive.

        With the `digest` of a block's previous bytes, it is updated, and the checksum covers those, too.
        """
        digest = xxhash.xxh3_128() if digest is None else digest
        for begin in range(0, len(view), _CHUNK):
            part = view[begin : begin + _CHUNK]
            self.receive_into(part)
            digest.update(part)
        return digest.digest()

    def discard(self, count: int) -> None:
        """Read and discard `count` bytes."""
        scratch = memoryview(bytearray(min(count, _CHUNK)))
        while count:
            part = scratch[: min(count, len(scratch))]
            self.receive_into(part)
            count -= len(part)

    def wake(self) -> None:
        """End a waiting `receive`. Called from another thread."""
        self._shutdown(socket.SHUT_RD)

    def cut(self) -> None:
        """End any call that waits for the peer. Called from another thread."""
        self._is_cut = True
        self._shutdown(socket.SHUT_RDWR)

    def _shutdown(self, how: int) -> None:
        with contextlib.suppress(OSError):
            # SSLSocket.shutdown ends TLS first: another thread could then send its next bytes in the clear.
            socket.socket.shutdown(self._socket, how)

    def accept_tls(self, context: ssl.SSLContext) -> None:
        """Continue over TLS as the node. Raises OSError."""
        wrapped = context.wrap_socket(self._socket, server_side=True, do_handshake_on_connect=False)
        self._socket = wrapped
        if self._is_cut:
            # `cut` may have reached only the socket that was wrapped.
            raise PeerError("the connection was cut")
        wrapped.do_handshake()

    def close(self) -> None:
        """Close at once."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def accept_client(self, keys: Keys, node_id: str, incarnation: int, host: str = "") -> str:
        """Authenticate a client at `host` as the node. Return the client's self-chosen name."""
        # A fresh nonce per connection, so that no proof can be replayed.
        nonce = os.urandom(NONCE_BYTES)
        self.send(Challenge(nonce))
        hello, _ = self.receive(greeting=True)
        if not isinstance(hello, Hello):
            raise PeerError("the client does not answer the challenge")
        with _handshake():
            proved = keys.matching(
                lambda key: proves(hello.proof, client_proof(key, nonce, hello.nonce)), hello.name or host
            )
            if proved is None:
                raise PeerError("the client does not know the secret")
            # By the client's key: it may not hold the one that this node uses.
            self.send(Welcome(server_proof(proved, nonce, hello.nonce), node_id, incarnation))
        return hello.name

    def greet_node(self, keys: Keys, name: str = "") -> Welcome:
        """Authenticate to a node as its client. Return the node's identity."""
        challenge, _ = self.receive(greeting=True)
        if not isinstance(challenge, Challenge):
            raise PeerError("the node does not begin with a challenge")
        nonce = os.urandom(NONCE_BYTES)
        with _handshake():
            self.send(Hello(nonce, client_proof(keys.used, challenge.nonce, nonce), name))
            welcome, _ = self.receive(greeting=True)
            if not isinstance(welcome, Welcome):
                raise PeerError("the node sent an unexpected response to the handshake")
            if not proves(welcome.proof, server_proof(keys.used, challenge.nonce, nonce)):
                raise PeerError("the node does not know the secret")
        return welcome

    @property
    def _flags(self) -> int:
        # MSG_WAITALL: the kernel wakes this thread once for a whole part. TLS sockets accept no flags.
        return 0 if isinstance(self._socket, ssl.SSLSocket) or sys.platform == "win32" else socket.MSG_WAITALL

    def _send_parts(self, parts: list[memoryview]) -> None:
        first = 0
        while first < len(parts):
            # The kernel takes a bounded number of parts (IOV_MAX), and perhaps not all of their bytes.
            sent = self._socket.sendmsg(parts[first : first + _MAX_PARTS])
            while first < len(parts) and sent >= len(parts[first]):
                sent -= len(parts[first])
                first += 1
            if sent:
                parts[first] = parts[first][sent:]


@contextlib.contextmanager
def _handshake() -> Iterator[None]:
    try:
        yield
    except HandshakeError as error:
        raise PeerError(str(error)) from error


def large_buffers(sock: socket.socket) -> None:
    """Request socket buffers for several blocks. The kernel limits their size."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
