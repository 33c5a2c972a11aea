"""The short way for decisions that need no waiting: answered where the request is parsed, without a task.

The HTTP protocol offers it complete `POST /api/v1/route` requests; the edge checks them as it checks
all others, and the app answers or declines. What is declined takes the ordinary way through ASGI as
if the lane did not exist, so the lane may decline whatever is rare.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from gateway.request_head import RequestHead

PATH = b"/api/v1/route"
MAX_BODY_BYTES = 64 * 1024

Headers = Sequence[tuple[bytes, bytes]]


class LaneAnswer(msgspec.Struct, frozen=True, gc=False):
    """One whole answer; Content-Length is added by whoever sends it."""

    status: int
    head: bytes
    """Header lines as they are sent, each with its line end."""
    body: bytes


def header_lines(headers: Headers) -> bytes:
    """Return the headers as they are sent."""
    return b"".join([b"%s: %s\r\n" % header for header in headers])


Lane = Callable[[list[tuple[bytes, bytes]], bytes], LaneAnswer | None]
"""What the protocol calls with headers (names in lower case) and body."""

InnerLane = Callable[[RequestHead, bytes], LaneAnswer | None]
"""What the edge calls once it has checked the head."""


class HasLane(Protocol):
    """An ASGI app that offers a lane; the edge is one."""

    def answer_at_once(self, headers: list[tuple[bytes, bytes]], body: bytes) -> LaneAnswer | None:
        """Answer the request, or decline it with None."""
        ...


def lane_of(app: object) -> Lane | None:
    """Return the lane of an ASGI app or of the app that it wraps, None where there is none."""
    for _ in range(8):
        lane = getattr(app, "answer_at_once", None)
        if lane is not None:
            return lane  # type: ignore[no-any-return]  # by the name, it is a HasLane
        app = getattr(app, "app", None)
    return None
