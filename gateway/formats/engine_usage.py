"""Reads an engine's usage from a complete body, or from a stream that is being relayed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import field

from gateway.formats.hit_figures import UNTOLD, HitsUnreadableError, reveals_hits, with_cached_tokens

MAX_HELD_BYTES = 1024 * 1024
MAX_HIDDEN_BYTES = 8 * MAX_HELD_BYTES
"""Of an event that has to be read before it may go on: a response repeats the request, in its last event."""
_DATA = b"data:"


Take = Callable[[bytes], bytes]


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """The usage object of any of the APIs, as far as it is read here.

    Chat, completions and embeddings count in `prompt_tokens`, responses and Anthropic's messages in `input_tokens`;
    those of messages leave out what was read from or written to a cache.
    """

    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input: int | None = field(name="input_tokens", default=None)
    output: int | None = field(name="output_tokens", default=None)
    input_details: _Details | None = field(name="input_tokens_details", default=None)
    cache_read: int | None = field(name="cache_read_input_tokens", default=None)
    cache_written: int | None = field(name="cache_creation_input_tokens", default=None)

    @property
    def _all_prompt_tokens(self) -> int:
        return self.prompt_tokens or (self.input or 0) + (self.cache_read or 0) + (self.cache_written or 0)

    @property
    def cached_tokens(self) -> int | None:
        """Cached prompt tokens; None where the engine does not report them, or reports nonsense."""
        details = self.prompt_tokens_details or self.input_details
        cached = details.cached_tokens if details is not None else self.cache_read
        return cached if cached is not None and 0 <= cached <= self._all_prompt_tokens else None

    @property
    def counted_tokens(self) -> int | None:
        """Prompt tokens as the engine counted them; None where it does not say."""
        counted = self._all_prompt_tokens
        return counted if counted > 0 else None

    @property
    def output_tokens(self) -> int | None:
        """Tokens of the answer."""
        output = self.completion_tokens if self.completion_tokens is not None else self.output
        return output if output is not None and output >= 0 else None

    def after(self, earlier: Usage | None) -> Usage:
        """Return this usage with what it leaves out taken from an earlier one of the same stream.

        The last one of a stream of messages may tell of the output alone.
        """
        if earlier is None or self.prompt_tokens or self.input:
            return self
        return msgspec.structs.replace(earlier, output=self.output)


class _Holder(msgspec.Struct, gc=False):
    usage: Usage | None = None


class _Answer(msgspec.Struct, gc=False):
    """A whole answer, or an event: those of responses and messages hold the answer as it is by then."""

    usage: Usage | None = None
    choices: list[msgspec.Raw] = []
    response: _Holder | None = None
    message: _Holder | None = None

    @property
    def told(self) -> Usage | None:
        """The usage, wherever it stands."""
        holder = self.response or self.message
        return self.usage or (holder.usage if holder is not None else None)


class _WholeAnswer(msgspec.Struct, gc=False):
    usage: Usage | None = None


_decode = msgspec.json.Decoder(_Answer).decode
_decode_whole = msgspec.json.Decoder(_WholeAnswer).decode


def usage_of(body: bytes) -> Usage | None:
    """Return the usage in a whole answer, None where there is none to read."""
    try:
        return _decode_whole(body).usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class StreamUsage:
    """Watches server-sent events pass; keeps the last usage seen.

    With `strip`, the extra event that only carries usage (no choices) is taken out, because it was
    asked for by the gateway and not by the client; only then is an event that has not arrived whole
    held back, until it has. So it is with `cached_tokens`, which then replaces the engine's figure, or takes it out,
    and with `take`, which is given the data of events that have `mark` in them and returns what goes on. UNTOLD takes
    out all that reveals hits; `feed` raises HitsUnreadableError where that is impossible.
    """

    def __init__(
        self, *, strip: bool, cached_tokens: int | None = None, mark: bytes = b"", take: Take | None = None
    ) -> None:
        self.usage: Usage | None = None
        self._mark, self._take = mark, take
        self._strip = strip
        self._cached_tokens = cached_tokens
        self._holds = strip or cached_tokens is not None or take is not None
        self._rest = b""

    def tell_cached(self, cached_tokens: int) -> None:
        """Have this figure told from here on, before the first chunk."""
        self._cached_tokens, self._holds = cached_tokens, True

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes that go on to the client now."""
        data = self._rest + chunk if self._rest else chunk
        cut = max(data.rfind(b"\n\n") + 2, data.rfind(b"\r\n\r\n") + 4)
        if cut < 4:
            cut = 0
        whole, self._rest = data[:cut], data[cut:]
        hides = self._cached_tokens == UNTOLD
        if len(self._rest) > (MAX_HIDDEN_BYTES if hides else MAX_HELD_BYTES):
            if hides:
                raise HitsUnreadableError
            whole, self._rest = data, b""
        if self._take is not None and self._mark in whole:
            whole = self._taken(whole, self._take)
        if b'"usage"' in whole or (hides and reveals_hits(whole)):
            whole = self._inspect(whole)
        return whole if self._holds else chunk

    def rest(self) -> bytes:
        """Return what is still held back when the stream has ended."""
        rest, self._rest = self._rest, b""
        if self._cached_tokens == UNTOLD and reveals_hits(rest):
            # No client reads an event without its end.
            return b""
        return rest if self._holds else b""

    def _taken(self, whole: bytes, take: Take) -> bytes:
        separator = b"\r\n\r\n" if b"\r\n\r\n" in whole else b"\n\n"
        events = []
        for event in whole.split(separator):
            if self._mark in event:
                head, data = _parted(event)
                left = take(data)
                events.append(event if left is data else head + b" " + left)
            else:
                events.append(event)
        return separator.join(events)

    def _inspect(self, whole: bytes) -> bytes:
        separator = b"\r\n\r\n" if b"\r\n\r\n" in whole else b"\n\n"
        events = whole.split(separator)
        kept = [event for event in events if b'"usage"' not in event or not self._is_extra(event)]
        if self._cached_tokens is not None:
            hides = self._cached_tokens == UNTOLD
            kept = [self._corrected(event) if hides or b'"usage"' in event else event for event in kept]
        return separator.join(kept)

    def _corrected(self, event: bytes) -> bytes:
        head, data = _parted(event)
        told = data if self._cached_tokens is None else with_cached_tokens(data, self._cached_tokens)
        return event if told is data else head + b" " + told

    def _is_extra(self, event: bytes) -> bool:
        answer = _read(_parted(event)[1])
        told = answer.told if answer is not None else None
        if answer is None or told is None:
            return False
        self.usage = told.after(self.usage)
        return self._strip and not answer.choices


def _parted(event: bytes) -> tuple[bytes, bytes]:
    """Return an event up to its data, and the data, which stands on one line."""
    start = 0 if event.startswith(_DATA) else event.find(b"\n" + _DATA) + 1
    cut = start + len(_DATA)
    return event[:cut], event[cut:]


def _read(body: bytes) -> _Answer | None:
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
