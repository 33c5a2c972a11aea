"""The output of one request between the engine and its HTTP response.

It consists of four-byte words, one per token, the same for the same prompt.
"""

from __future__ import annotations

import asyncio
import math
import random


class TokenStream:
    """Counts generated tokens and wakes its only reader when there are enough to send.

    The first token and the end are passed on at once, others every `interval` tokens.
    """

    __slots__ = ("_interval", "_taken", "_waiter", "broken", "cached_tokens", "finished", "generated", "request_id")

    def __init__(self, request_id: str, interval: int) -> None:
        self.request_id = request_id
        self.cached_tokens = 0
        self.generated = 0
        self.finished = False
        self.broken = False
        """Whether the stream ended early, because the engine stops or the client left."""
        self._interval = interval
        self._taken = 0
        self._waiter: asyncio.Future[None] | None = None

    def add_token(self) -> None:
        """Count one more token."""
        self.generated += 1
        if self.generated == 1 or self.generated - self._taken >= self._interval:
            self._wake()

    def finish(self) -> None:
        """Mark the last token as generated."""
        self.finished = True
        self._wake()

    def break_off(self) -> None:
        """End the stream early."""
        self.broken = True
        self._wake()

    async def burst(self) -> tuple[int, int] | None:
        """Wait for new tokens and return their range [first, end). Return None after the last token or an early end."""
        while not self._ready():
            if self.finished or self.broken:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        first, self._taken = self._taken, self.generated
        return first, self.generated

    def _ready(self) -> bool:
        fresh = self.generated - self._taken
        if self.broken or not fresh:
            return False
        return self.finished or self._taken == 0 or fresh >= self._interval

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


_WORDS = (
    "the rail car and one can run far with low wait but its own line may bend out past red hill for all who see how "
    "old iron men set any new way now two saw our sun dim fog lift air hum oil lamp dew wet pin rod cog jam bay hub"
)
_TOKENS = tuple(f"{word:<4}" for word in _WORDS.split() if len(word) <= 3)
_PERIOD = 1021
"""A prime larger than any token table, so that consecutive prompts do not produce the same words in step."""
_SCRIPT = tuple(random.Random(20).choices(_TOKENS, k=_PERIOD))
_MEDIAN_TOKENS = 350.0
_SPREAD = 0.6
_MIN_TOKENS, _MAX_TOKENS = 8, 2000


def answer_text(seed: int, first: int, end: int) -> str:
    """Return output tokens `first` … `end` − 1 of the output named by `seed`; each token is four ASCII bytes."""
    return "".join([_SCRIPT[(seed + index) % _PERIOD] for index in range(first, end)])


def natural_tokens(seed: int) -> int:
    """Return the length of the output named by `seed` if it has no limit (log-normal, median 350 tokens)."""
    drawn = random.Random(seed).lognormvariate(math.log(_MEDIAN_TOKENS), _SPREAD)
    return max(_MIN_TOKENS, min(_MAX_TOKENS, round(drawn)))
