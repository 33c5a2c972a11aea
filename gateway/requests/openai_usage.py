"""Reads what an engine says it used, from a whole body or from a stream on its way through."""

from __future__ import annotations

import msgspec

MAX_HELD_BYTES = 1024 * 1024
UNTOLD = -1
"""Instead of a number of cached tokens: the client is not told of any."""


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """OpenAI's usage object, as far as it is read here."""

    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None

    @property
    def cached_tokens(self) -> int | None:
        """Cached prompt tokens; None where the engine does not report them, or reports nonsense."""
        cached = self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details is not None else None
        return cached if cached is not None and 0 <= cached <= self.prompt_tokens else None

    @property
    def counted_tokens(self) -> int | None:
        """Prompt tokens as the engine counted them; None where it does not say."""
        return self.prompt_tokens if self.prompt_tokens > 0 else None

    @property
    def output_tokens(self) -> int | None:
        """Tokens of the answer."""
        output = self.completion_tokens
        return output if output is not None and output >= 0 else None


class _Answer(msgspec.Struct, gc=False):
    usage: Usage | None = None
    choices: list[msgspec.Raw] = []


_decode = msgspec.json.Decoder(_Answer).decode


def usage_of(body: bytes) -> Usage | None:
    """Return the usage in a whole answer, None where there is none to read."""
    answer = _read(body)
    return answer.usage if answer is not None else None


def with_cached_tokens(body: bytes, cached_tokens: int) -> bytes:
    """Return an answer whose usage names so many cached prompt tokens, or none; one without a usage stays as it is.

    A decode engine counts what came from another engine as cached, although it was computed there.
    """
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return body
    details = usage.get("prompt_tokens_details")
    told = {**details} if isinstance(details, dict) else {}
    told["cached_tokens"] = cached_tokens
    if cached_tokens == UNTOLD:
        del told["cached_tokens"]
    usage["prompt_tokens_details"] = told or None
    return msgspec.json.encode(answer)


class StreamUsage:
    """Watches server-sent events pass; keeps the last usage seen.

    With `strip`, the extra event that only carries usage (no choices) is taken out, because it was
    asked for by the gateway and not by the client; only then is an event that has not arrived whole
    held back, until it has. So it is with `cached_tokens`, which then replaces the engine's figure, or takes it out.
    """

    def __init__(self, *, strip: bool, cached_tokens: int | None = None) -> None:
        self.usage: Usage | None = None
        self._strip = strip
        self._cached_tokens = cached_tokens
        self._holds = strip or cached_tokens is not None
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes that go on to the client now."""
        data = self._rest + chunk if self._rest else chunk
        cut = max(data.rfind(b"\n\n") + 2, data.rfind(b"\r\n\r\n") + 4)
        if cut < 4:
            cut = 0
        whole, self._rest = data[:cut], data[cut:]
        if len(self._rest) > MAX_HELD_BYTES:
            whole, self._rest = data, b""
        if b'"usage"' in whole:
            whole = self._inspect(whole)
        return whole if self._holds else chunk

    def rest(self) -> bytes:
        """Return what is still held back when the stream has ended."""
        rest, self._rest = self._rest, b""
        return rest if self._holds else b""

    def _inspect(self, whole: bytes) -> bytes:
        separator = b"\r\n\r\n" if b"\r\n\r\n" in whole else b"\n\n"
        events = whole.split(separator)
        kept = [event for event in events if b'"usage"' not in event or not self._is_extra(event)]
        if self._cached_tokens is not None:
            kept = [self._corrected(event) if b'"usage"' in event else event for event in kept]
        return separator.join(kept)

    def _corrected(self, event: bytes) -> bytes:
        head, colon, data = event.partition(b":")
        told = data if self._cached_tokens is None else with_cached_tokens(data, self._cached_tokens)
        return event if told is data else head + colon + b" " + told

    def _is_extra(self, event: bytes) -> bool:
        answer = _read(event.partition(b":")[2])
        if answer is None or answer.usage is None:
            return False
        self.usage = answer.usage
        return self._strip and not answer.choices


def _read(body: bytes) -> _Answer | None:
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
