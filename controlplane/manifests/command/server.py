"""Requests to the management API of a running installation."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from typing_extensions import override

TIMEOUT_S = 120.0
_MAX_ANSWER = 64 << 20


class ServerError(Exception):
    """The installation does not answer, or rejects the request. `status` is that of its response; 0: none."""

    def __init__(self, sentence: str, status: int = 0, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.problem = problem or {}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which would carry the key to another server."""

    @override
    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        """Return no request."""


def ask(url: str, key: str, path: str, body: Any = None) -> Any:
    """Return the JSON answer to a GET or, with a body, a POST below /api/v1/. Raises ServerError."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Accept": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(f"{url.rstrip('/')}/api/v1/{path}", data, headers)  # noqa: S310 - checked next
        if request.type not in ("http", "https"):
            raise ValueError("write http:// or https://")
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read(_MAX_ANSWER))
    except urllib.error.HTTPError as error:
        with error:
            raise _rejected(error) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ServerError(f"Headway does not answer at {url}: {reason}. Name its address with --url.") from error


def _rejected(error: urllib.error.HTTPError) -> ServerError:
    try:
        problem = json.loads(error.read(_MAX_ANSWER))
        detail = str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        return ServerError(f"The server at this address answers {error.code}, not as Headway does.", error.code)
    if error.code == 401:
        detail = "Set HEADWAY_API_KEY to an API key with the scope manage."
    return ServerError(detail, error.code, problem)
