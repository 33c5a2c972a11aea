"""The few ASGI operations of the engine server: read a body, send a response, detect a disconnected client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from simulator.engine_server.api_error import EngineApiError
from simulator.engine_server.settings import MAX_BODY_BYTES

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_Result = TypeVar("_Result")

_JSON = b"application/json"
_encode = msgspec.json.Encoder().encode


class EngineClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


async def read_body(receive: Receive) -> bytes:
    """Return the request body. Raise EngineApiError 413 over the limit, EngineClientGoneError on an early
    disconnect.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise EngineClientGoneError
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise EngineApiError(413, f"the request body is over {MAX_BODY_BYTES} bytes; send a shorter prompt")
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def send_bytes(send: Send, status: int, body: bytes, content_type: bytes = _JSON) -> None:
    """Send a complete response."""
    headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, status: int, value: object) -> None:
    """Send a complete JSON response."""
    await send_bytes(send, status, _encode(value))


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first value of a header (lower-case name), None if it is absent."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


async def gone(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(receive: Receive, work: Awaitable[_Result]) -> _Result:
    """Return the result of the work. If the client disconnects first, cancel it and raise EngineClientGoneError."""
    task, left = asyncio.ensure_future(work), asyncio.ensure_future(gone(receive))
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise EngineClientGoneError
        return task.result()
    finally:
        for item in (task, left):
            item.cancel()
        # Neither may outlive the request.
        await asyncio.gather(task, left, return_exceptions=True)
