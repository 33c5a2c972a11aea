"""A loopback HTTP server with responses set by a test; it records the requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType

Asked = tuple[str, str, dict[str, str], bytes]
Answerer = Callable[[str, str, dict[str, str], bytes], tuple[int, bytes]]


@contextmanager
def http_server(answer: Answerer, types: Mapping[str, str] = MappingProxyType({})) -> Iterator[tuple[str, list[Asked]]]:
    """Serve during the block. Yield the base URL and a list of requests. `types`: content types other than JSON."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = (self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            asked.append(request)
            status, said = answer(*request)
            self.send_response(status)
            self.send_header("Content-Type", types.get(self.path, "application/json"))
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PATCH = handle_any

        def log_message(self, *_args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
