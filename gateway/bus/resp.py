"""Redis's wire format (RESP 2) as far as a server needs it: commands in, answers out."""

from __future__ import annotations

MAX_COMMAND_BYTES = 128 << 20
_MAX_ARGUMENTS = 1024
_MAX_NUMBER_BYTES = 24

Answer = bytes | int | None | list["Answer"]
OK = b"+OK\r\n"


class NoCommandError(ValueError):
    """The bytes are no valid command in Redis's wire format, or the command exceeds a limit."""


def read_command(buffer: bytearray, start: int) -> tuple[list[bytes], int] | None:
    """Return (command at `start`, start of the next command), None if it is incomplete. Raise NoCommandError."""
    counted = _number(buffer, start, b"*")
    if counted is None:
        return None
    count, at = counted
    if not 0 < count <= _MAX_ARGUMENTS:
        raise NoCommandError("a command needs an argument")
    words = []
    for _ in range(count):
        measured = _number(buffer, at, b"$")
        if measured is None:
            return None
        length, at = measured
        if not 0 <= length <= MAX_COMMAND_BYTES:
            raise NoCommandError("an argument is over the limit")
        if len(buffer) < at + length + 2:
            return None
        words.append(bytes(buffer[at : at + length]))
        at += length + 2
    return words, at


def encode(answer: Answer) -> bytes:
    """Return an answer's wire format."""
    if answer is None:
        return b"$-1\r\n"
    if isinstance(answer, int):
        return b":%d\r\n" % answer
    if isinstance(answer, bytes):
        return b"$%d\r\n%s\r\n" % (len(answer), answer)
    return b"*%d\r\n%s" % (len(answer), b"".join(map(encode, answer)))


def encode_error(message: str) -> bytes:
    """Return an error's wire format. The first word is the error code."""
    return b"-" + message.encode("ascii", errors="replace") + b"\r\n"


def _number(buffer: bytearray, start: int, mark: bytes) -> tuple[int, int] | None:
    """Return (number, start of the next line) for the line at `start`, which begins with `mark`."""
    if start >= len(buffer):
        return None
    end = buffer.find(b"\r\n", start, start + _MAX_NUMBER_BYTES)
    line = bytes(buffer[start : end if end >= 0 else start + _MAX_NUMBER_BYTES])
    if line[:1] != mark or (end < 0 and len(line) == _MAX_NUMBER_BYTES):
        raise NoCommandError("a command must be a list of byte strings")
    if end < 0:
        return None
    if not line[1:].isdigit():
        raise NoCommandError("a length must be a whole number")
    return int(line[1:]), end + 2
