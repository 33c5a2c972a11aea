"""The starts of the prompts of the last minutes, as block keys: a bounded, even sample of one pool's dispatches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from gateway.traffic.prefix_icicle import MAX_BLOCKS

MAX_PROMPTS = 1000
SPAN_S = 300.0
LEAST_SPAN_S = 60.0
"""Where more prompts come than find room, every so many is kept that the sample goes back about so far."""


class SeenPrompt(msgspec.Struct, frozen=True, gc=False):
    """One prompt that was dispatched to an engine."""

    at_s: float
    """Monotonic seconds."""
    keys: Sequence[int]
    """Of its first blocks, MAX_BLOCKS at most."""
    engine_id: str
    weight: int
    """Requests that it represents."""


class PrefixWindow:
    """Keeps every n-th dispatch. Mutable state: the prompts, and how many come; the loop's thread alone."""

    def __init__(self) -> None:
        self._prompts: deque[SeenPrompt] = deque(maxlen=MAX_PROMPTS)
        self._every = 1
        self._left = 1
        self._noted = 0
        self._looked_s: float | None = None

    def note(self, keys: Sequence[int], engine_id: str, now: float) -> None:
        """Count a dispatch; of a prompt without keys nothing is known. `now` is monotonic seconds."""
        self._noted += 1
        self._left -= 1
        if self._left:
            return
        self._left = self._every
        if keys:
            self._prompts.append(SeenPrompt(now, keys[:MAX_BLOCKS], engine_id, self._every))

    def look(self, now: float) -> list[SeenPrompt]:
        """Return the prompts of the last SPAN_S seconds, and choose how many are kept from here on."""
        prompts = self._prompts
        while prompts and now - prompts[0].at_s > SPAN_S:
            prompts.popleft()
        if self._looked_s is not None and now > self._looked_s:
            per_s = self._noted / (now - self._looked_s)
            self._every = max(1, round(per_s * LEAST_SPAN_S / MAX_PROMPTS))
            self._left = min(self._left, self._every)
        self._looked_s, self._noted = now, 0
        return list(prompts)
