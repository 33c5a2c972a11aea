"""Forward a fixed port to a node, whose own port changes with restarts, and cut connections."""

from __future__ import annotations

import contextlib
import random
import socket
import threading

_CHUNK = 16 << 10
_CUT_WITHIN = 200_000
"""A cut connection ends within this many bytes, so that cuts occur in every part of a frame."""


class FaultProxy:
    """A proxy in front of one node.

    Mutable: `port_behind`, the node's port (0: none), and the open pairs of sockets.
    """

    def __init__(self, seed: str) -> None:
        self.port_behind = 0
        self.cuts = 0
        self._rng = random.Random(seed)
        self._cut_next = 0
        self._open: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name=f"proxy-{self.address}", daemon=True).start()

    def cut(self, later: int) -> None:
        """Cut all connections now, and the next `later` ones after a random number of bytes."""
        with self._lock:
            pairs, self._cut_next = list(self._open), later
            self.cuts += len(pairs)
        for pair in pairs:
            _end(*pair)

    def close(self) -> None:
        """Stop accepting connections, and cut open ones."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut(0)

    def _accept(self) -> None:
        while True:
            try:
                front, _ = self._listener.accept()
            except OSError:
                return
            try:
                back = socket.create_connection(("127.0.0.1", self.port_behind), 5.0)
            except OSError:
                front.close()
                continue
            # Only the connection attempt has a timeout; an open connection may be silent.
            back.settimeout(None)
            pair = front, back
            for item in pair:
                item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.add(pair)
                doomed = self._cut_next > 0
                self._cut_next -= doomed
                budgets = [self._rng.randrange(_CUT_WITHIN) if doomed else 1 << 62 for _ in range(2)]
            # Both directions must have ended before the sockets are closed, or a reused descriptor would be read.
            ends = threading.Barrier(2, action=lambda pair=pair: self._forget(pair))  # type: ignore[misc]
            for source, target, budget in ((front, back, budgets[0]), (back, front, budgets[1])):
                threading.Thread(target=self._copy, args=(source, target, budget, ends), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, budget: int, ends: threading.Barrier) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(min(_CHUNK, budget + 1)):
                if len(data) > budget:
                    # The bytes up to the cut are sent, so that the peer sees a part of a frame.
                    target.sendall(data[:budget])
                    self.cuts += 1
                    break
                target.sendall(data)
                budget -= len(data)
        _end(source, target)
        with contextlib.suppress(threading.BrokenBarrierError):
            ends.wait(60.0)

    def _forget(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._open.discard(pair)
        for item in pair:
            item.close()


def _end(*sockets: socket.socket) -> None:
    for item in sockets:
        with contextlib.suppress(OSError):
            item.shutdown(socket.SHUT_RDWR)
