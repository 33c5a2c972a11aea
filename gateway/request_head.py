"""What the edge reads from a request's headers once, for everybody behind it."""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping
from typing import Any

import uuid_utils

SCOPE_KEY = "switchyard.head"
"""Where the edge puts the head in the ASGI scope."""

_SANE_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}").fullmatch


class RequestHead:
    """Headers by name (the last of duplicates) and the request's id.

    `request_id` is the client's X-Request-Id where that is sane (`given` is then True), else a new
    UUIDv7, which may then also name the decision.
    """

    __slots__ = ("given", "headers", "request_id")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.headers: dict[bytes, bytes] = dict(headers)
        offered = self.headers.get(b"x-request-id")
        self.given = offered is not None and _SANE_ID(offered) is not None
        self.request_id = offered.decode() if offered is not None and self.given else new_id()


def new_id() -> str:
    """Return a fresh UUIDv7 as text."""
    return str(uuid_utils.uuid7())


def head_of(scope: MutableMapping[str, Any]) -> RequestHead:
    """Return the head that the edge left in the scope, or read it where no edge stands in front."""
    head = scope.get(SCOPE_KEY)
    return head if isinstance(head, RequestHead) else RequestHead(scope["headers"])
