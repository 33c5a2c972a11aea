"""Decodes request bodies with a Content-Encoding, within the limit of the decoded body.

A few bytes can encode gigabytes, so a decoder returns at most PIECE_BYTES per event loop step and stops at the limit.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Protocol

from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
from typing_extensions import override

from gateway.base.asgi_types import Message
from gateway.server.http.guarded_receive import GuardedReceive, RejectedAtEdgeError, too_large

PIECE_BYTES = 256 * 1024
MAX_MEMBERS = 1024
"""Limit of consecutive streams in one body, because each needs a decoder."""
_ZSTD_WINDOW_LOG = 23
"""8 MiB, the largest window that RFC 9659 allows in HTTP. A frame can name a much larger one, which the decoder would
allocate.
"""
_FAULTS = (zlib.error, ZstdError, EOFError)


class _Decoder(Protocol):
    """A decoder of one compressed stream, with the interface of the standard library's decompressors."""

    @property
    def needs_input(self) -> bool:
        """Return whether the decoder needs more input to return anything."""

    @property
    def eof(self) -> bool:
        """Return whether the stream has ended."""

    @property
    def unused_data(self) -> bytes:
        """Return the bytes after the stream's end."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return up to `max_length` bytes."""


class _Gzip(_Decoder):
    """zlib's decompressor with the interface of the others. Mutable: its unread input, and whether it needs more."""

    def __init__(self) -> None:
        # 16 selects gzip's header instead of zlib's.
        self._stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._dry = True

    @property
    @override
    def needs_input(self) -> bool:
        return self._dry

    @property
    @override
    def eof(self) -> bool:
        return self._stream.eof

    @property
    @override
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    @override
    def decompress(self, data: bytes, max_length: int) -> bytes:
        piece = self._stream.decompress(self._stream.unconsumed_tail + data, max_length)
        # A full piece may have more behind it within the decompressor.
        self._dry = not self._stream.unconsumed_tail and len(piece) < max_length
        return piece


def _zstd() -> _Decoder:
    return ZstdDecompressor(options={DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})


_DECODERS: dict[bytes, Callable[[], _Decoder]] = {b"gzip": _Gzip, b"x-gzip": _Gzip, b"zstd": _zstd}


def is_encoded(encoding: bytes | None) -> bool:
    """Return whether a body with this Content-Encoding must be decoded."""
    return encoding is not None and encoding.strip().lower() not in (b"", b"identity")


class DecodedReceive:
    """An ASGI `receive` that returns the decoded body of `receive`.

    Raise RejectedAtEdgeError: 415 on construction for an unknown encoding, 413 for more than `limit` decoded bytes, 400
    for a body that is damaged or ends early. Mutable: the decoder, and how far the body is read and decoded.
    """

    def __init__(self, receive: GuardedReceive, encoding: bytes, limit: int) -> None:
        self._name = encoding.strip().lower()
        decoder = _DECODERS.get(self._name)
        if decoder is None:
            text = "Send the body with Content-Encoding gzip or zstd, or without it."
            raise RejectedAtEdgeError(415, text, "encoded_body")
        self._receive, self._limit = receive, limit
        self._make, self._decoder = decoder, decoder()
        self._data = b""
        self._fresh = True
        """Whether the decoder has not read anything yet."""
        self._members = self._decoded_bytes = 0
        self._whole = self._ended = False

    async def __call__(self) -> Message:
        """Return the next ASGI message."""
        while not self._ended:
            if self._data or not self._decoder.needs_input:
                # Each piece, and each empty stream, has a turn of the event loop of its own.
                await asyncio.sleep(0)
                if piece := self._decode():
                    return {"type": "http.request", "body": piece, "more_body": True}
            elif self._whole:
                if not self._fresh:
                    raise self._damaged()
                self._ended = True
                return {"type": "http.request", "body": b"", "more_body": False}
            else:
                message = await self._receive()
                if message["type"] != "http.request":
                    return message
                self._data, self._whole = message.get("body", b""), not message.get("more_body", False)
        return await self._receive()

    def _decode(self) -> bytes:
        try:
            piece = self._decoder.decompress(self._data, PIECE_BYTES)
        except _FAULTS:
            raise self._damaged() from None
        self._data, self._fresh = b"", False
        if self._decoder.eof:
            self._members += 1
            if self._members > MAX_MEMBERS:
                raise self._damaged()
            self._data, self._decoder, self._fresh = self._decoder.unused_data, self._make(), True
        self._decoded_bytes += len(piece)
        if self._decoded_bytes > self._limit:
            raise too_large(self._limit)
        self._receive.hold(self._decoded_bytes)
        return piece

    def _damaged(self) -> RejectedAtEdgeError:
        text = f"The body is not a complete {self._name.decode()} stream, or not valid in HTTP (RFC 8478, RFC 9659)."
        return RejectedAtEdgeError(400, text, "damaged_encoding")
