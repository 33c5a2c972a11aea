"""A real engine of a model with sliding windows beside full attention: its hits are predicted, evicted windows included.

vLLM 0.32 keeps the window blocks before a prompt's end alone, and those before the end of what two prompts share from
the second one on. So a prefix whose full-attention blocks are all there can be no hit, or a shorter one.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kvstore.keys.block_keys import token_block_keys
from tests.gateway.served_gateway import MODEL, ServedGateway
from tests.patience import until
from tests.vllm import tiny_hybrid_model
from tests.vllm.conftest import MODEL as TEXT_MODEL
from tests.vllm.conftest import PYTHON
from tests.vllm.exact_gateway import exact_gateway
from tests.vllm.real_engine import BLOCK_TOKENS, RealEngine, while_running
from tests.vllm.tiny_hybrid_model import WINDOW_BLOCKS

pytestmark = pytest.mark.vllm
STEP_TOKENS = 512
"""Longer prompts are computed in several steps, whose windows leave while the prompt runs."""


@pytest.fixture(scope="module")
def hybrid(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RealEngine]]:
    folder = tmp_path_factory.mktemp("hybrid")
    subprocess.run([PYTHON, tiny_hybrid_model.__file__, folder, TEXT_MODEL], check=True)
    flags = ("--max-num-batched-tokens", str(STEP_TOKENS))
    with while_running([RealEngine(PYTHON, folder, logs / "hybrid.log", flags=flags)]) as made:
        yield made


@pytest.fixture
async def gateway(hybrid: list[RealEngine], tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with exact_gateway(hybrid, tmp_path) as running:
        yield running


class Asked(NamedTuple):
    """Blocks of one prompt: in the cache as predicted and as reported, and those that full attention had."""

    predicted: int
    cached: int
    full: int


async def ask(gateway: ServedGateway, prompt: list[int]) -> Asked:
    """Send a prompt, and return once the gateway has the events of its last block."""
    pool = gateway.pool
    (engine,) = pool.engines.values()
    keys = token_block_keys(pool.seed("", ""), prompt[:-1], BLOCK_TOKENS)
    held = [bool(pool.router.index.targets_of(key, 0)) for key in keys]
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 1, "temperature": 0}
    status, answer, headers = await gateway.post("/v1/completions", body)
    assert status == 200, answer
    record = gateway.app.recent.get(headers["x-switchyard-decision"])
    assert record is not None
    await until(lambda: pool.router.index.targets_of(keys[-1], 0))
    assert engine.trust.grade == "exact"
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert (record.decision.hit_tokens % BLOCK_TOKENS, cached % BLOCK_TOKENS) == (0, 0)
    return Asked(record.decision.hit_tokens // BLOCK_TOKENS, cached // BLOCK_TOKENS, [*held, False].index(False))


class Prompts:
    """Prompts of random tokens, none of which ends a block, so that each brings events of its own."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def tokens(self, blocks: int) -> list[int]:
        """Return random tokens, all of them ordinary words."""
        return self._random.choices(range(10, 1900), k=blocks * BLOCK_TOKENS)

    def after(self, prefix: list[int], blocks: int) -> list[int]:
        """Return a prompt that goes on from a prefix in a way of its own."""
        return [*prefix, *self.tokens(blocks), *self.tokens(1)[:9]]


async def test_a_shared_prefix_is_no_hit_until_its_window_is_kept(gateway: ServedGateway) -> None:
    made = Prompts(1)
    whole = made.after(made.tokens(8), 6)
    assert await ask(gateway, whole) == Asked(0, 0, 0)
    assert await ask(gateway, whole) == Asked(14, 14, 14)
    # Longer than the whole: its window is kept at the end.
    assert await ask(gateway, made.after(whole[: 14 * BLOCK_TOKENS], 2)) == Asked(14, 14, 14)
    # Shorter: full attention has its eight blocks, and no window ends there. The second time one does.
    begin = whole[: 8 * BLOCK_TOKENS]
    assert await ask(gateway, made.after(begin, 3)) == Asked(0, 0, 8)
    assert await ask(gateway, made.after(begin, 3)) == Asked(8, 8, 8)
    # Within the first window, or behind it.
    short = whole[: 2 * BLOCK_TOKENS]
    assert await ask(gateway, made.after(short, 3)) == Asked(0, 0, 2)
    assert await ask(gateway, made.after(short, 3)) == Asked(2, 2, 2)


async def test_a_prompt_of_whole_blocks_is_predicted_by_the_block_that_is_computed_again(
    gateway: ServedGateway,
) -> None:
    made = Prompts(2)
    whole = made.tokens(9)
    # A window ends with the ninth block. The engine looks for one that ends with the eighth.
    assert (await ask(gateway, made.after(whole, 0))).cached == 0
    first, again = await ask(gateway, whole), await ask(gateway, whole)
    assert (first.predicted, again.predicted) == (first.cached, again.cached)
    assert again.cached == 8


async def test_hits_stay_exact_while_windows_and_prompts_are_evicted(gateway: ServedGateway) -> None:
    """Prompts that share beginnings of many lengths, several times as many as fit into the engine's blocks."""
    made, drawn = Prompts(3), random.Random(4)
    roots = [made.tokens(12) for _ in range(5)]
    before = [made.after(root[: drawn.randint(1, 12) * BLOCK_TOKENS], drawn.randint(0, 8)) for root in roots]
    counts = next(iter(gateway.pool.engines.values())).intake.ledger.counts
    removed, asked = counts["BlockRemoved"], []
    for _ in range(120):
        kind = drawn.random()
        if kind < 0.4:
            prompt = drawn.choice(before[-12:])
        elif kind < 0.7:
            old = drawn.choice(before[-12:])
            prompt = made.after(old[: len(old) // BLOCK_TOKENS * BLOCK_TOKENS], drawn.randint(1, 3))
        else:
            root = drawn.choice(roots)
            prompt = made.after(root[: drawn.randint(1, 12) * BLOCK_TOKENS], drawn.randint(0, 8))
        before.append(prompt[: 40 * BLOCK_TOKENS + 9])
        asked.append(await ask(gateway, before[-1]))
    assert [each.predicted for each in asked] == [each.cached for each in asked]
    assert counts["BlockRemoved"] - removed > 100
    # Whole prefixes, and those of which windows were missing or evicted: some are no hit, and some a shorter one.
    assert sum(each.cached == each.full > WINDOW_BLOCKS for each in asked) > 10
    assert sum(each.cached == 0 < each.full for each in asked) > 5
    assert sum(0 < each.cached < each.full for each in asked) > 2
