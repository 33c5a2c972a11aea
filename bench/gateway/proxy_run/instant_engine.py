"""An engine that answers each request immediately with the same tokens, and answers queries of routers and the agent.

A streamed chat gets CHUNKS chunks, one every CHUNK_S.

`python -m bench.gateway.proxy_run.instant_engine PORT [OTHER_PORT …]`: the agent's fleet consists of the engines at all
ports.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

import uvloop
from typing_extensions import override

MODEL = "instant-8b"
_USAGE = {"prompt_tokens": 400, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 128}}
_MESSAGE = {"role": "assistant", "content": "Hello."}
_CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": MODEL,
    "choices": [{"index": 0, "finish_reason": "stop", "message": _MESSAGE}],
    "usage": _USAGE,
}


CHUNKS, CHUNK_S = 64, 0.002
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)


def _chunk(choices: list[dict[str, object]], **more: object) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    return _framed(b"data: " + json.dumps({**head, "choices": choices, **more}).encode() + b"\n\n")


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


_PIECE = _chunk([{"index": 0, "delta": {"role": "assistant", "content": "word "}, "finish_reason": None}])
_END = (
    _chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    + _chunk([], usage={**_USAGE, "total_tokens": 402})
    + _framed(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)


def answers(ports: list[str]) -> dict[bytes, bytes]:
    """Return the body for each path. Any other path gets an empty object."""
    engines = [
        {"engine_id": f"engine-{port}", "pool": "pool", "connect_url": f"http://127.0.0.1:{port}"} for port in ports
    ]
    pools = [{"slug": "pool", "served_model": MODEL, "isolated": False}]
    bodies = {
        b"/v1/chat/completions": _CHAT,
        b"/v1/models": {"object": "list", "data": [{"id": MODEL, "object": "model"}]},
        b"/get_model_info": {"model_path": MODEL, "is_generation": True},
        b"/get_server_info": {"model_path": MODEL},
        b"/api/v1/engines": {"results": engines, "next": None},
        b"/api/v1/pools": {"results": pools, "next": None},
    }
    return {path: json.dumps(body).encode() for path, body in bodies.items()}


class Connection(asyncio.Protocol):
    """One connection: reads heads with a Content-Length, answers each request."""

    def __init__(self, bodies: dict[bytes, bytes]) -> None:
        self._bodies = bodies
        self._buffer = bytearray()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    @override
    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._buffer[:end]).lower()
            _, header, length = head.partition(b"content-length: ")
            total = end + 4 + (int(length.partition(b"\r\n")[0]) if header else 0)
            if len(self._buffer) < total:
                return
            asked = bytes(self._buffer[end + 4 : total])
            del self._buffer[:total]
            if b'"stream": true' in asked or b'"stream":true' in asked:
                self._stream(CHUNKS)
                continue
            path = head.partition(b" ")[2].partition(b" ")[0].partition(b"?")[0]
            body = self._bodies.get(path, b"{}")
            self._transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )

    def _stream(self, left: int) -> None:
        """Send a chunk, and schedule the others. The last one reports the usage."""
        if self._transport.is_closing():
            return
        head = _STREAM_HEAD if left == CHUNKS else b""
        self._transport.write(head + (_PIECE if left else _END))
        if left:
            asyncio.get_running_loop().call_later(CHUNK_S, self._stream, left - 1)


async def serve(ports: list[str]) -> None:
    """Serve until killed."""
    bodies = answers(ports)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(bodies), "127.0.0.1", int(ports[0]))
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1:]))
