"""Reads an engine's answer by its API: where a streamed answer begins, its usage, and whether it is an error.

A streamed answer begins with its first event that has content. Comments, events that only announce the request, chunks
that only name a role, and usage chunks precede it. Until then, another engine can still give the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.requests.formats.engine_error import EngineError, error_in
from gateway.requests.formats.engine_usage import Usage
from gateway.requests.formats.event_stream import EventCutter, StreamEvent, events_in
from gateway.requests.formats.hit_figures import (
    HIDDEN,
    HIT_MARKS,
    HitsUnreadableError,
    reveals_hits,
    with_cached_tokens,
)
from routing.values.prepared_struct import prepared

MAX_HELD_BYTES = 1024 * 1024
"""A longer event, or a longer beginning without content, is relayed without reading it."""
MAX_HIDDEN_BYTES = 8 * MAX_HELD_BYTES
"""Limit of an event that must be read before it is relayed. The last event of a response repeats the request."""
DONE = b"[DONE]"
_USAGE = b'"usage"'
_ERROR_MARKS = (b"error", b".failed")
_ANNOUNCING = ("created", "queued", "in_progress", "added")
"""Suffixes of the event kinds by which the responses API announces later events."""
_STARTS = frozenset(("message_start", "content_block_start", "ping"))
_NAMES_ONLY = frozenset(("role",))

Take = Callable[[bytes], bytes]
_Json = dict[str, Any]


_FINISH_MARKS = (b'"finish_reason":"', b'"finish_reason": "', b'"stop_reason":"', b'"stop_reason": "')
MAX_FINISH_REASONS = 128
"""Limit of the finish reasons that are kept of one answer."""


class UnreadableAnswerError(ValueError):
    """A complete answer that is not a JSON object, as all answers of these APIs are."""


class AnswerFacts(msgspec.Struct):
    """Facts for a span, as the engine states them: the answer's id, its model, and why its choices ended.

    Mutable: filled in while the answer is relayed.
    """

    response_id: str = ""
    model: str = ""
    finish_reasons: list[str] = []

    def read(self, data: bytes) -> None:
        """Take the facts in one event, or in a complete answer, of any of the APIs."""
        answer = _object(data)
        for holder in (answer, answer.get("response"), answer.get("message"), answer.get("delta")):
            if isinstance(holder, dict):
                self.response_id = self.response_id or _text(holder.get("id"))
                self.model = self.model or _text(holder.get("model"))
                self._ended_for(_text(holder.get("stop_reason")))
        choices = answer.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._ended_for(_text(choice.get("finish_reason")))

    def _ended_for(self, reason: str) -> None:
        if reason and len(self.finish_reasons) < MAX_FINISH_REASONS:
            self.finish_reasons.append(reason)


def _text(value: object) -> str:
    return value[:256] if isinstance(value, str) else ""


class _Whole(msgspec.Struct, gc=False):
    usage: Usage | None = None
    error: Any = None
    object: Any = None


def read_whole(body: bytes) -> tuple[Usage | None, EngineError | None]:
    """Return (usage, error) of a complete answer with status 200; raise UnreadableAnswerError."""
    try:
        answer = _decode_whole(body)
    except msgspec.ValidationError:
        # A usage of another form; the rest of the answer is the client's.
        answer = _Whole()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnreadableAnswerError from None
    if answer.error is None and answer.object != "error":
        return answer.usage, None
    return answer.usage, error_in(_object(body))


_decode_whole = msgspec.json.Decoder(_Whole).decode


class AnswerStream:
    """Reads the events of one answer while they are relayed, and returns the bytes for the client.

    With `strip`, the gateway requested the usage and the client did not: usage-only events are removed, and so is the
    usage in other events. An incomplete event is held back only if it may have to be changed. `cached_tokens` replaces
    the engine's figure; HIDDEN removes everything that reveals hits, and `feed` raises HitsUnreadableError if that is
    impossible. `take` receives the data of events that contain `mark` and returns their replacement. `facts` is filled
    in for a span.

    Mutable: `begun`, `ended` (the engine reports its answer as complete), and the last `usage` and `error`.
    """

    def __init__(
        self,
        *,
        strip: bool,
        cached_tokens: int | None = None,
        mark: bytes = b"",
        take: Take | None = None,
        facts: AnswerFacts | None = None,
    ) -> None:
        self.begun = False
        self.ended = False
        self.usage: Usage | None = None
        self.error: EngineError | None = None
        self._strip, self._cached_tokens, self._mark, self._take = strip, cached_tokens, mark, take
        self._facts = facts
        self._changes = strip or cached_tokens is not None or take is not None
        self._read_marks = self._marks_of_read_events()
        self._cutter = EventCutter()
        self._held = b""

    def report_cached(self, cached_tokens: int) -> None:
        """Use this figure for cached tokens. Call it before any bytes are relayed."""
        self._cached_tokens, self._changes = cached_tokens, True
        self._read_marks = self._marks_of_read_events()

    def _marks_of_read_events(self) -> tuple[bytes, ...]:
        """Return marks of which each event that has to be read contains one. The others pass without being decoded."""
        taken = (self._mark,) if self._take is not None else ()
        hits = HIT_MARKS if self._hides else ()
        finish = _FINISH_MARKS if self._facts is not None else ()
        return (DONE, _USAGE, *_ERROR_MARKS, *taken, *hits, *finish)

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes to relay to the client now; none before the answer has begun."""
        if self.begun and not self._cutter.unfinished and chunk.endswith(b"\n\n"):
            # Whole events, as engines send them. Nearly all contain only a token, so they are scanned right here.
            for mark in self._read_marks:
                if mark in chunk:
                    break
            else:
                return chunk
        whole = self._cutter.feed(chunk)
        if not self.begun:
            return self._beginning(whole)
        if len(self._cutter) > self._limit:
            whole += self._unread()
        passed = self._read(whole)
        return passed if self._changes else chunk

    def rest(self) -> bytes:
        """Return the bytes that are still held back when the stream has ended."""
        rest = self._cutter.rest()
        if self._hides and reveals_hits(rest):
            # No client reads an event without its end.
            rest = b""
        if not self.begun:
            return self._read(self._held) + rest
        return rest if self._changes else b""

    @property
    def _hides(self) -> bool:
        return self._cached_tokens == HIDDEN

    @property
    def _limit(self) -> int:
        return MAX_HIDDEN_BYTES if self._hides else MAX_HELD_BYTES

    def _unread(self) -> bytes:
        """Return the unfinished event, which is too long to be read."""
        if self._hides:
            raise HitsUnreadableError
        return self._cutter.rest()

    def _beginning(self, whole: bytes) -> bytes:
        self._held += whole
        for event in events_in(whole) if self.error is None else ():
            self.error = _error_of(event)
            self.begun = self.error is None and _has_content(event)
            self.ended = self.ended or event.data == DONE
            if self._facts is not None and event.data is not None and not self._is_marked(event.raw):
                # Its first events name the answer; marked ones are read below.
                self._facts.read(event.data)
            if self.begun or self.error is not None:
                break
        if self.error is not None:
            return b""
        if len(self._held) + len(self._cutter) > self._limit:
            self.begun = True
            self._held += self._unread()
        if not self.begun:
            return b""
        held, self._held = self._held, b""
        passed = self._read(held)
        # Later bytes go on as they come, so this goes on with the first bytes of an incomplete event.
        return passed if self._changes else passed + self._cutter.copy()

    def _read(self, whole: bytes) -> bytes:
        """Record the contents of complete events, and return the bytes to relay."""
        if not self._is_marked(whole):
            return whole
        return b"".join([
            self._changed(event) if self._is_marked(event.raw) else event.raw for event in events_in(whole)
        ])  # fmt: skip

    def _is_marked(self, data: bytes) -> bool:
        for mark in self._read_marks:  # noqa: SIM110 - a generator would cost more than the search in a stream's event
            if mark in data:
                return True
        return False

    def _changed(self, event: StreamEvent) -> bytes:
        data = event.data
        if data is None:
            return event.raw
        if data == DONE:
            self.ended = True
            return event.raw
        self.error = self.error or _error_of(event)
        if self._facts is not None:
            self._facts.read(data)
        left = data
        if self._take is not None and self._mark in left:
            left = self._take(left)
        if _USAGE in left:
            left = self._without_usage(left)
        if self._cached_tokens is not None and left:
            left = with_cached_tokens(left, self._cached_tokens)
        if left is data:
            return event.raw
        return event.with_data(left) if left else b""

    def _without_usage(self, data: bytes) -> bytes:
        """Return the data for the client, empty to drop the event."""
        answer = _object(data)
        used = usage_in(answer)
        if used is None:
            return data
        self.usage = used.after(self.usage)
        if self._strip:
            if not answer.get("choices"):
                return b""
            del answer["usage"]
            return msgspec.json.encode(answer)
        return data


def usage_in(answer: _Json) -> Usage | None:
    """Return the usage of a decoded answer or event. Events of responses and messages contain the answer so far."""
    holders = (answer, answer.get("response"), answer.get("message"))
    for holder in holders:
        if isinstance(holder, dict) and isinstance(holder.get("usage"), dict):
            try:
                return msgspec.convert(holder["usage"], prepared(Usage))
            except msgspec.ValidationError:
                return None
    return None


def _error_of(event: StreamEvent) -> EngineError | None:
    data = event.data
    if data is None or not (event.kind == b"error" or b"error" in data or b".failed" in data):
        return None
    return error_in(_object(data))


def _has_content(event: StreamEvent) -> bool:
    """Return whether an event carries a part of the answer. An unknown event counts as content."""
    if event.data is None or event.data == DONE:
        return False
    answer = _object(event.data)
    if not answer:
        return event.data.strip() not in (b"", b"{}")
    kind = answer.get("type") or event.kind.decode(errors="replace")
    if isinstance(kind, str) and kind:
        block = answer.get("content_block")
        names_tool = isinstance(block, dict) and bool(block.get("name"))
        return kind not in _STARTS and (
            names_tool or (kind.split(".")[-1] not in _ANNOUNCING and kind != "content_block_start")
        )
    choices = answer.get("choices")
    if not isinstance(choices, list):
        return True
    return any(_says_something(choice) for choice in choices)


def _says_something(choice: object) -> bool:
    if not isinstance(choice, dict):
        return True
    delta = choice.get("delta")
    said = [value for name, value in delta.items() if name not in _NAMES_ONLY] if isinstance(delta, dict) else []
    return bool(choice.get("text") or choice.get("finish_reason") or any(said))


def _object(data: bytes) -> _Json:
    """Return a JSON object; empty for anything else."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
