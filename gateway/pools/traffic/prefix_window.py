"""The prompt prefixes of the last minutes as block keys: a bounded, even sample of one pool's dispatches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from gateway.pools.traffic.prefix_icicle import MAX_BLOCKS

MAX_PROMPTS = 1000
SPAN_S = 300.0
LEAST_SPAN_S = 60.0
"""Seconds that a full sample should cover. With more prompts, only every n-th is kept."""


class SeenPrompt(msgspec.Struct, frozen=True, gc=False):
    """One prompt that was dispatched to an engine."""

    at_s: float
    """Monotonic seconds."""
    keys: Sequence[int]
    """Keys of its first blocks, at most MAX_BLOCKS."""
    engine_id: str
    weight: int
    """Number of requests that it represents."""


class PrefixWindow:
    """Keeps every n-th dispatch. Mutable: the prompts and their rate, used on the loop's thread."""

    def __init__(self) -> None:
        self._prompts: deque[SeenPrompt] = deque(maxlen=MAX_PROMPTS)
        self._every = 1
        self._left = 1
        self._noted = 0
        self._read_s: float | None = None

    def note(self, keys: Sequence[int], engine_id: str, now: float) -> None:
        """Count a dispatch. A prompt without keys is ignored. `now` is monotonic seconds."""
        self._noted += 1
        self._left -= 1
        if self._left:
            return
        self._left = self._every
        if keys:
            self._prompts.append(SeenPrompt(now, keys[:MAX_BLOCKS], engine_id, self._every))

    def ending_at(self, key: int) -> tuple[Sequence[int], dict[str, float]]:
        """Return a prefix by its last key, and the requests with it per engine; empty if none was sampled."""
        prefix, requests = list[int](), dict[str, float]()
        for prompt in self._prompts:
            if key in prompt.keys:
                prefix = list(prompt.keys[: prompt.keys.index(key) + 1])
                requests[prompt.engine_id] = requests.get(prompt.engine_id, 0.0) + prompt.weight
        return prefix, requests

    def recent(self, now: float) -> list[SeenPrompt]:
        """Return the prompts of the last SPAN_S seconds, and set the sampling rate for later prompts."""
        prompts = self._prompts
        while prompts and now - prompts[0].at_s > SPAN_S:
            prompts.popleft()
        if self._read_s is not None and now > self._read_s:
            per_s = self._noted / (now - self._read_s)
            self._every = max(1, round(per_s * LEAST_SPAN_S / MAX_PROMPTS))
            self._left = min(self._left, self._every)
        self._read_s, self._noted = now, 0
        return list(prompts)
