"""Send requests to one program and record its answers."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field
from typing import Any

from bench.golden.masks import STABLE_HEADERS, body_of, masked, series_of, shape_of


@dataclass
class Asker:
    """Sends requests to one program. Mutable: the recorded answers, in order."""

    port: int
    keys: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    seen: list[dict[str, Any]] = field(default_factory=list)

    def ask(
        self, method: str, path: str, body: Any = None, key: str = "", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], str]:
        """Send one request. `body` is JSON unless it is bytes."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        if key:
            sent["Authorization"] = f"Bearer {self.keys.get(key, key)}"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        for cookie in answer.headers.get_all("Set-Cookie") or ():
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text

    def note(self, method: str, path: str, body: Any = None, key: str = "", **how: Any) -> Any:
        """Send a request, record the exchange, and return the body. `only="shape"` omits the values."""
        status, headers, text = self.ask(method, path, body, key, how.get("headers"))
        content_type = headers.get("content-type", "")
        if only := how.get("only"):
            recorded = series_of(text) if only == "series" else shape_of(json.loads(text)) if only == "shape" else None
        else:
            recorded = body_of(content_type, text)
        shown = body.decode()[:80] if isinstance(body, bytes) else body
        self.seen.append({
            "request": masked([f"{method} {path}", key, shown, how.get("headers")]),
            "status": status,
            "headers": {n: masked(v) if n in STABLE_HEADERS else "…" for n, v in sorted(headers.items())},
            "body": recorded,
        })  # fmt: skip
        return json.loads(text) if "json" in content_type else text

    def made(self, path: str, body: Any, key: str = "admin", **how: Any) -> dict[str, Any]:
        """Create an object for later requests, record the exchange, and return the object.

        Raises if it was not created.
        """
        answer = self.note("POST", path, body, key, **how)
        if self.seen[-1]["status"] not in (200, 201):
            raise RuntimeError(f"POST {path} was answered {self.seen[-1]['status']}: {answer}")
        return dict(answer)

    def etag(self, path: str, key: str = "admin") -> str:
        """Return an object's ETag, which is needed to change it."""
        status, headers, text = self.ask("GET", path, None, key)
        if "etag" not in headers:
            raise RuntimeError(f"GET {path} was answered {status} without an ETag: {text[:300]}")
        return headers["etag"]

    def cookie_header(self) -> str:
        """Return the cookies that the program set, as a browser sends them back."""
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())
