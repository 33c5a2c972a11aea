"""Idempotent requests: a repeated request id gets the first answer instead of a second engine."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")
Key = tuple[str, str]


class RepeatedRequests(Generic[Answer]):
    """Answers by (API key id, request id), at most `capacity`; the oldest is dropped first.

    A failed or cancelled call stores nothing, so that a repeated call tries again.
    """

    def __init__(self, capacity: int = 10_000) -> None:
        self._capacity = capacity
        self._answers: OrderedDict[Key, asyncio.Future[Answer]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    async def known(self, key: Key, wait_s: float) -> Answer | None:
        """Return the answer under `key`, None if there is none. Raise TimeoutError if it is still in progress after
        `wait_s`.
        """
        made = self._answers.get(key)
        if made is None:
            return None
        # wait() instead of await: a waiter that is cancelled must not cancel the answer of the others.
        done, _ = await asyncio.wait([made], timeout=wait_s)
        if not done:
            raise TimeoutError
        return None if made.cancelled() else made.result()

    async def once(self, key: Key, make: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the answer under `key`. The first call computes it; concurrent calls wait for it."""
        while (known := self._answers.get(key)) is not None:
            await asyncio.wait([known])
            if not known.cancelled():
                return known.result()
        promise: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers[key] = promise
        if len(self._answers) > self._capacity:
            self._answers.popitem(last=False)
        try:
            answer = await make()
        except BaseException:
            # Cancelled or failed: other waiters must not wait for ever, and a repetition may try again.
            promise.cancel()
            if self._answers.get(key) is promise:
                del self._answers[key]
            raise
        promise.set_result(answer)
        return answer
