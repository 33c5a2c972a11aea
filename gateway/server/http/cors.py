"""Lets pages of other origins call the inference API from browsers (CORS, Fetch standard).

API keys are sent in headers, not in cookies, so no response allows credentials.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.server.http.engine_paths import takes_prompts
from gateway.server.http.http_exchange import Header
from gateway.server.http.request_head import RequestHead

ANY = "*"
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/,?#@\"\\]+").fullmatch
_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~\-, ]{1,2048}").fullmatch
_EXPOSED: Header = (b"access-control-expose-headers", b"x-request-id, x-headway-decision, retry-after")
_VARY: Header = (b"vary", b"Origin")


def read_origins(origins: Sequence[str], name: str) -> tuple[str, ...]:
    """Return the origins as browsers send them; raise ValueError that names the setting for an invalid origin."""
    read = tuple(origin.strip().lower().removesuffix("/") for origin in origins if origin.strip())
    for origin in read:
        if origin != ANY and not _ORIGIN(origin):
            raise ValueError(
                f"{name}: {origin!r} is not an origin; write https://host, https://host:port, or * for any"
            )
    return read


class Cors:
    """Origins that can call the API. Empty: none."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._any = ANY in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def headers(self, path: str, head: RequestHead) -> tuple[Header, ...]:
        """Return the response headers at this path for the request's origin."""
        if not self._origins or not takes_prompts(path):
            return ()
        if self._any:
            return ((b"access-control-allow-origin", b"*"), _EXPOSED)
        origin = head.headers.get(b"origin", b"")
        if origin not in self._origins:
            # A cache must not give this answer to a page of an allowed origin.
            return (_VARY,)
        return ((b"access-control-allow-origin", origin), _EXPOSED, _VARY)

    def preflight(self, path: str, method: str, head: RequestHead) -> tuple[Header, ...] | None:
        """Return the headers that allow a preflighted request, in addition to `headers`; None if it is no preflight."""
        asked = head.headers.get(b"access-control-request-method")
        if method != "OPTIONS" or asked is None or b"origin" not in head.headers or not takes_prompts(path):
            return None
        if not self.headers(path, head)[1:]:
            return ()
        names = head.headers.get(b"access-control-request-headers", b"")
        allowed = ((b"access-control-allow-headers", names),) if _NAMES(names) else ()
        return ((b"access-control-allow-methods", b"GET, POST"), *allowed, (b"access-control-max-age", b"600"))
