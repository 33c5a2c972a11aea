"""Serve a node's metrics. They are public, so every connection counts as unauthenticated."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from typing_extensions import override

from kvstore.transfer.unproven import Unproven

MAX_CONNECTIONS = 16
SCRAPE_S = 5.0


class MetricsPort(ThreadingMixIn, WSGIServer):
    """Answers one request per connection, within SCRAPE_S. Mutable state: `_open`, guarded by `_lock`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], registry: CollectorRegistry, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._open: Unproven[socket.socket] = Unproven(MAX_CONNECTIONS, SCRAPE_S)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _SilentHandler)
        self.set_app(make_wsgi_app(registry))

    def start(self) -> None:
        """Serve in background threads."""
        threading.Thread(target=self.serve_forever, name="kv-metrics", daemon=True).start()

    def stop(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            displaced = self._open.enter(request, client_address[0], self._clock())
        if displaced is not None:
            _cut(displaced)
        super().process_request(request, client_address)

    # `serve_forever` calls this twice a second.
    @override
    def service_actions(self) -> None:
        with self._lock:
            late = self._open.late(self._clock())
        for item in late:
            _cut(item)

    @override
    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.leave(request)
        super().shutdown_request(request)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        # A scraper that was cut, or that left, is no fault of the node.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _SilentHandler(WSGIRequestHandler):
    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: unauthenticated clients would determine the log's volume."""


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
