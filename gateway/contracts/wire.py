"""Encodes and decodes bus messages: msgpack of one type, within a size limit, with one error for invalid data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from routing.values.prepared_struct import prepared

MessageT = TypeVar("MessageT")

MIB = 1 << 20


class UnreadableMessageError(ValueError):
    """The bytes are not a valid message of the expected kind; the text states why."""


class WireForm(Generic[MessageT]):
    """Wire format of one kind of message. `what` is its name in errors, with an article; `limit` is in bytes.

    `problem` returns the violated bound of a decoded message with its path, empty if there is none.
    """

    __slots__ = ("_decode", "_encode", "_limit", "_problem", "_what")

    def __init__(
        self, kind: type[MessageT], what: str, *, limit: int, problem: Callable[[MessageT], str] = lambda _: ""
    ) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(prepared(kind)).decode
        self._what = what
        self._limit = limit
        self._problem = problem

    def encode(self, message: MessageT) -> bytes:
        """Return the message as msgpack."""
        return self._encode(message)

    def decode(self, data: bytes) -> MessageT:
        """Read a message; raise UnreadableMessageError for invalid data and for values out of bounds.

        A message over the limit is not decoded.
        """
        if len(data) > self._limit:
            raise UnreadableMessageError(f"{self._what} of {len(data)} bytes is over the limit of {self._limit}")
        try:
            message = self._decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnreadableMessageError(f"not {self._what}: {error}") from error
        if problem := self._problem(message):
            raise UnreadableMessageError(problem)
        return message
