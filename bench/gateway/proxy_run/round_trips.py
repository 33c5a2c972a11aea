"""Round trips of chat requests over one keep-alive connection."""

from __future__ import annotations

import json
import socket
import statistics
import time
from random import Random

from bench.gateway.proxy_run.instant_engine import MODEL

PREFIXES, PROMPTS = 16, 64
PAUSE_S = 0.004
"""Pause between requests, so that reports on one do not delay the next. Real answers take longer."""


def requests(kilobytes: int) -> list[bytes]:
    """Return PROMPTS complete HTTP requests with this body size. Each shares its first half with three others."""
    rng = Random(kilobytes)
    words = [f"{rng.getrandbits(24):06x} " for _ in range(4096)]

    def text(count: int) -> str:
        return "".join(rng.choice(words) for _ in range(count // 7))

    half = kilobytes * 512
    prefixes = [text(half) for _ in range(PREFIXES)]
    made = []
    for number in range(PROMPTS):
        message = {"role": "user", "content": prefixes[number % PREFIXES] + text(half)}
        body = json.dumps({"model": MODEL, "messages": [message], "max_tokens": 2}).encode()
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        made.append(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    rng.shuffle(made)
    return made


def p50_us(port: int, asked: list[bytes]) -> float:
    """Return the median microseconds of a round trip. Raises RuntimeError for an answer other than 200.

    A busy gateway's answers with 429 are ignored. Raises RuntimeError if they are more than half.
    """
    took: list[float] = []
    with socket.create_connection(("127.0.0.1", port), 30.0) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for item in asked:
            time.sleep(PAUSE_S)
            before = time.perf_counter_ns()
            connection.sendall(item)
            status = _read(connection)
            if status == 200:
                took.append((time.perf_counter_ns() - before) / 1e3)
            elif status != 429:
                raise RuntimeError(f"port {port} answered {status}")
    if len(took) < len(asked) / 2:
        raise RuntimeError(f"port {port} rejected most requests")
    return statistics.median(took)


def _read(connection: socket.socket) -> int:
    """Read one answer, by its length or in chunks, and return its status."""
    buffer = bytearray()
    while (end := buffer.find(b"\r\n\r\n")) < 0:
        buffer += _more(connection)
    head = bytes(buffer[:end]).lower()
    _, header, length = head.partition(b"content-length: ")
    total = end + 4 + int(length.partition(b"\r\n")[0]) if header else 0
    while len(buffer) < total if header else not buffer.endswith(b"0\r\n\r\n"):
        buffer += _more(connection)
    return int(head.split(b" ", 2)[1])


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 16)
    if not data:
        raise RuntimeError("the connection was closed")
    return data
