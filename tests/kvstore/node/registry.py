"""A control plane at which nodes register, for tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


@contextmanager
def registry(answer: Callable[[dict[str, Any]], bytes] = lambda _: b"") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the registration URL and the entries received; `answer` returns the response to a report."""
    entries: list[dict[str, Any]] = []

    class Registry(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answered = answer(body)
            entries.append({**body, "authorization": self.headers["authorization"]})
            self.send_response(200)
            self.send_header("content-length", str(len(answered)))
            self.end_headers()
            self.wfile.write(answered)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = HTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/nodes", entries
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
