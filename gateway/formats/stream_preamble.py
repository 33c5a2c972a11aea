"""Events at the start of a stream before its engine's first token, which only announce the request."""

from __future__ import annotations

import re

MAX_HELD_BYTES = 1024 * 1024
_END = re.compile(rb"\r?\n\r?\n")
_KIND = re.compile(rb"^event: ?([a-z_.]+)", re.MULTILINE)


class Preamble:
    """Holds a stream back until its first event that is not one of `kinds`.

    While nothing has gone to the client, another engine can still give the answer, and no moment before the first
    token is taken for it. Mutable: `over`, and what is held.
    """

    def __init__(self, kinds: frozenset[bytes]) -> None:
        self.over = not kinds
        self._kinds = kinds
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return what goes on now."""
        if self.over:
            return chunk
        self._held += chunk
        *events, _ = _END.split(self._held)
        self.over = len(self._held) > MAX_HELD_BYTES or any(self._is_answer(event) for event in events)
        return self.rest() if self.over else b""

    def rest(self) -> bytes:
        """Return what is still held back when the stream has ended."""
        held, self._held = self._held, b""
        return held

    def _is_answer(self, event: bytes) -> bool:
        kind = _KIND.search(event)
        return not event.startswith(b":") and (kind is None or kind[1] not in self._kinds)
