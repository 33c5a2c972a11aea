"""Fields that the edge reads once from a request's headers, for all later stages."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import uuid_utils

SCOPE_KEY = "headway.head"
"""Key of the head in the ASGI scope, set by the edge."""

_SINGLE = frozenset((
    b"host", b"authorization", b"x-api-key", b"x-headway-client-authorization", b"content-type", b"content-length",
    b"content-encoding",
))  # fmt: skip
_TAG_DIGITS = 8
_UUID_7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}").fullmatch
MAX_NAME = 128
_SANE_ID = re.compile(rb"[\x21-\x7e]{1,%d}" % MAX_NAME).fullmatch


def is_sane_id(offered: bytes) -> bool:
    """Return whether a client's request id is visible ASCII of at most MAX_NAME characters."""
    return _SANE_ID(offered) is not None


def new_id() -> str:
    """Return a fresh UUIDv7 as text."""
    return str(uuid_utils.uuid7())


class RequestHead:
    """Headers by name (the last of duplicates) and the request's id.

    `repeats` is True if a field occurred twice that must occur once, so that no reader relies on the other value.
    `request_id` is the client's X-Request-Id if that is visible ASCII (`given` is then True), else a new UUIDv7, which
    can also become the decision's id.
    """

    __slots__ = ("given", "headers", "repeats", "request_id")

    def __init__(self, headers: Sequence[tuple[bytes, bytes]], make_id: Callable[[], str] = new_id) -> None:
        self.headers: dict[bytes, bytes] = dict(headers)
        self.repeats = len(self.headers) != len(headers) and _repeats(headers)
        offered = self.headers.get(b"x-request-id")
        self.given = offered is not None and is_sane_id(offered)
        self.request_id = offered.decode() if offered is not None and self.given else make_id()

    @property
    def client_request_id(self) -> str:
        """Return the id that the client sent, empty if it sent none."""
        return self.request_id if self.given else ""


def _repeats(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    single = [name for name, _ in headers if name in _SINGLE]
    return len(single) != len(set(single))


class TaggedIds:
    """Generates UUIDv7 ids whose last digits identify this gateway process, so that peers can address it."""

    __slots__ = ("tag",)

    def __init__(self) -> None:
        self.tag = secrets.token_hex(_TAG_DIGITS // 2)

    def __call__(self) -> str:
        """Return a fresh id. Its last random bits are the tag."""
        return new_id()[:-_TAG_DIGITS] + self.tag


def tag_of(made_id: str) -> str:
    """Return the tag of an id, empty if no gateway of this fleet can have made it."""
    return made_id[-_TAG_DIGITS:] if _UUID_7(made_id) else ""


def head_of(scope: MutableMapping[str, Any]) -> RequestHead:
    """Return the head that the edge stored in the scope, or read it if there is no edge."""
    head = scope.get(SCOPE_KEY)
    return head if isinstance(head, RequestHead) else RequestHead(scope["headers"])
