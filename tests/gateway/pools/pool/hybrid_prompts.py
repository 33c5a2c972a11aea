"""Prompts with shared prefixes for a gateway with one hybrid-model engine, compared with its predictions."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from kvstore.keys.block_keys import token_block_keys
from tests.gateway.served_gateway import MODEL, ServedGateway
from tests.patience import until

COMPLETIONS = "/v1/completions"
ROOT_BLOCKS = 12


class Asked(NamedTuple):
    """Blocks of one prompt: predicted and reported in the cache, and those that full attention had."""

    predicted: int
    cached: int
    full: int


class HybridPrompts:
    """Sends prompts to the gateway's only engine. Mutable: the generators of tokens and prompts."""

    def __init__(self, gateway: ServedGateway, seed: int) -> None:
        self._gateway = gateway
        self._pool = gateway.pool
        self._size = self._pool.entry.block_tokens
        self._random = random.Random(seed)

    @property
    def removed(self) -> int:
        """Return the number of eviction events so far."""
        (engine,) = self._pool.engines.values()
        return int(engine.intake.ledger.counts["BlockRemoved"])

    def tokens(self, blocks: int) -> list[int]:
        """Return random tokens, all ordinary words."""
        return self._random.choices(range(10, 1900), k=blocks * self._size)

    def after(self, prefix: list[int], blocks: int) -> list[int]:
        """Return a prompt that extends a prefix with unique tokens and does not end at a block boundary."""
        return [*prefix, *self.tokens(blocks), *self.tokens(1)[:9]]

    async def ask(self, prompt: list[int]) -> Asked:
        """Send a prompt, and return once the gateway has its events."""
        keys = self._keys(prompt[:-1])
        held = [self._holds(key) for key in keys]
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 1, "temperature": 0}
        status, answer, headers = await self._gateway.post(COMPLETIONS, body)
        assert status == 200, answer
        record = self._gateway.app.recent.get(headers["x-headway-decision"])
        assert record is not None
        hits = record.decision.hit_tokens, answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert [hit % self._size for hit in hits] == [0, 0]
        await self._events_came()
        return Asked(hits[0] // self._size, hits[1] // self._size, [*held, False].index(False))

    async def ask_many(self, count: int) -> list[Asked]:
        """Send prompts again, extended, and truncated to any length."""
        drawn, asked = self._random, list[Asked]()
        roots = [self.tokens(ROOT_BLOCKS) for _ in range(5)]
        before = [self._from_root(roots) for _ in range(5)]
        for _ in range(count):
            kind, old = drawn.random(), drawn.choice(before[-12:])
            whole = old[: min(len(old) // self._size, 2 * ROOT_BLOCKS) * self._size]
            fresh = self.after(whole, drawn.randint(1, 3)) if kind < 0.7 else self._from_root(roots)
            before.append(old if kind < 0.4 else fresh)
            asked.append(await self.ask(before[-1]))
        return asked

    def _from_root(self, roots: list[list[int]]) -> list[int]:
        length = self._random.randint(1, ROOT_BLOCKS) * self._size
        return self.after(self._random.choice(roots)[:length], self._random.randint(0, 8))

    def _keys(self, tokens: list[int]) -> list[int]:
        return list(token_block_keys(self._pool.seed("", ""), tokens, self._size))

    def _holds(self, key: int) -> bool:
        return bool(self._pool.router.index.targets_of(key, 0))

    async def _events_came(self) -> None:
        """Return once the event of one more prompt, sent to the engine directly, has arrived.

        It is one block: of a longer one the engine may publish evictions after it has stored the last block.
        """
        (engine,) = self._pool.engines.values()
        prompt = self.tokens(1)
        body: dict[str, Any] = {"model": MODEL, "prompt": prompt, "max_tokens": 1}
        async with self._gateway.client.post(engine.entry.url + COMPLETIONS, json=body) as answer:
            assert answer.status == 200
        (key,) = self._keys(prompt)
        await until(lambda: self._holds(key))
        assert engine.trust.grade == "exact"
