"""A Kubernetes API server on loopback: lists, watches with bookmarks, and a history that can be compacted."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes import client

from tests.patience import PATIENCE_S

PODS = "/api/v1/namespaces/llm/pods"
Object = dict[str, Any]


@dataclass
class Cluster:
    """Objects by path and name. Paths that are not named answer 404, as kinds that the cluster does not have."""

    url: str = ""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and query of each request, in order."""
    failing: int = 0
    """Status of all answers, 0 for normal ones."""
    _objects: dict[str, dict[str, Object]] = field(default_factory=dict)
    _history: list[tuple[int, str, str, Object | None, Object | None]] = field(default_factory=list)
    _version: int = 1
    _oldest: int = 0
    _hang_ups: int = 0
    _open: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def serve(self, path: str) -> None:
        """Have this kind of object."""
        with self._changed:
            self._objects.setdefault(path, {})

    def put(self, path: str, name: str, labels: dict[str, str] | None = None, **parts: Any) -> None:
        """Store an object."""
        self._store(path, name, {"metadata": {"name": name, "labels": labels or {}, **parts.pop("meta", {})}, **parts})

    def pod(self, name: str, ip: str | None, *, ready: bool = True, app: str = "vllm", **more: Any) -> None:
        """Store a pod. `more`: phase, and fields of its metadata."""
        status = {
            "podIP": ip,
            "phase": more.pop("phase", "Running"),
            "conditions": [{"type": "Ready", "status": str(ready)}],
        }
        self.put(PODS, name, {"app": app}, status=status, meta=more)

    def delete(self, path: str, name: str) -> None:
        """Remove an object."""
        self._store(path, name, None)

    def bookmark(self) -> None:
        """Send a bookmark to all watches."""
        with self._changed:
            self._version += 1
            self._history.append((self._version, "", "", None, None))
            self._changed.notify_all()

    def compact(self) -> None:
        """Forget the history, so that older versions are gone."""
        with self._changed:
            self._oldest = self._version
            self._history.clear()

    def hang_up(self, failing: int = 0) -> None:
        """Close all watches without an end, once there is one. `failing` is the status of the answers from then on."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._open, PATIENCE_S)
            self.failing = failing
            self._hang_ups += 1
            self._changed.notify_all()

    def end(self) -> None:
        """Close all watches that are open."""
        with self._changed:
            self._hang_ups += 1
            self._changed.notify_all()

    def requests(self, kind: str, path: str = PODS) -> list[dict[str, str]]:
        """Return the queries of this kind, "list" or "watch"."""
        return [query for at, query in self.asked if at == path and ("watch" in query) == (kind == "watch")]

    def _store(self, path: str, name: str, made: Object | None) -> None:
        with self._changed:
            self._version += 1
            kept = self._objects.setdefault(path, {})
            before = kept.pop(name, None)
            if made is not None:
                made["metadata"]["resourceVersion"] = str(self._version)
                kept[name] = made
            elif before is not None:
                before = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self._version)}}
            self._history.append((self._version, path, name, before, made))
            self._changed.notify_all()

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        """Return the status and the list, or an iterator of events."""
        self.asked.append((path, query))
        if self.failing or path not in self._objects:
            return self.failing or 404, {}
        if "watch" in query:
            return 200, self._events(path, query)
        with self._changed:
            items = [item for item in self._objects[path].values() if _matches(item, query)]
            return 200, {"metadata": {"resourceVersion": str(self._version)}, "items": items}

    def _events(self, path: str, query: dict[str, str]) -> Iterator[Object]:
        seen, hang_ups = int(query["resourceVersion"]), self._hang_ups
        if seen < self._oldest:
            yield {
                "type": "ERROR",
                "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"},
            }
            return
        while True:
            with self._changed:
                self._open += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda since=seen: self._version > since or self._hang_ups != hang_ups)
                self._open -= 1
                if self._hang_ups != hang_ups:
                    raise ConnectionAbortedError
                due = [item for item in self._history if item[0] > seen]
                seen = self._version
            for version, at, _, before, after in due:
                if not at:
                    yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}
                elif at == path and (event := _event(before, after, query)):
                    yield event


def _event(before: Object | None, after: Object | None, query: dict[str, str]) -> Object | None:
    was, now = _matches(before, query), _matches(after, query)
    if not was and not now:
        return None
    kind = "MODIFIED" if was and now else "ADDED" if now else "DELETED"
    return {"type": kind, "object": after or before}


def _matches(item: Object | None, query: dict[str, str]) -> bool:
    if item is None:
        return False
    name = query.get("fieldSelector", "").partition("metadata.name=")[2]
    pairs = [pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair]
    return name in ("", item["metadata"]["name"]) and all(
        item["metadata"]["labels"].get(label) == value for label, value in pairs
    )


@contextmanager
def cluster() -> Iterator[tuple[Cluster, client.ApiClient]]:
    """Run an API server with pods; yield it and a connection."""
    made = Cluster()
    made.serve(PODS)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            split = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(split.query).items()}
            status, said = made.answer(split.path, query)
            self.send_response(status)
            if isinstance(said, dict):
                body = json.dumps(said).encode()
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for event in said:
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True

        def log_message(self, *_args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    configuration = client.Configuration(host=made.url)
    configuration.retries = False
    try:
        with client.ApiClient(configuration) as connection:
            yield made, connection
    finally:
        made.end()
        server.shutdown()
        server.server_close()
        thread.join()
