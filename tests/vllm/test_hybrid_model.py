"""Real engines of models with sliding windows, or Mamba states, next to full attention: their hits are predicted.

vLLM 0.32 keeps the window's blocks, or the state, only before a prompt's end, and from the second prompt on before the
end of the part that two prompts share. So a prefix whose full-attention blocks are all cached can be no hit, or a
shorter one.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.gateway.pools.pool.hybrid_prompts import Asked, HybridPrompts
from tests.gateway.served_gateway import ServedGateway
from tests.vllm.conftest import MODEL as TEXT_MODEL
from tests.vllm.conftest import PYTHON
from tests.vllm.exact_gateway import exact_gateway
from tests.vllm.models import tiny_hybrid_model
from tests.vllm.models.tiny_hybrid_model import KINDS
from tests.vllm.real_engine import BLOCK_TOKENS, RealEngine, while_running

pytestmark = pytest.mark.vllm
STEP_TOKENS = 512
"""Longer prompts are computed in several steps, and lose blocks before the window meanwhile."""


@pytest.fixture(scope="module")
def hybrids(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RealEngine]]:
    """Run one engine of each kind."""
    flags = ("--max-num-batched-tokens", str(STEP_TOKENS), "--enable-prefix-caching")
    folder = tmp_path_factory.mktemp("hybrid")
    subprocess.run([PYTHON, tiny_hybrid_model.__file__, folder, TEXT_MODEL], check=True)
    made = {kind: RealEngine(PYTHON, folder / kind, logs / f"hybrid-{kind}.log", flags=flags) for kind in KINDS}
    with while_running([*made.values()]):
        yield made


@pytest.fixture(params=KINDS)
async def gateway(
    request: pytest.FixtureRequest, hybrids: dict[str, RealEngine], tmp_path: Path
) -> AsyncIterator[ServedGateway]:
    """Run a gateway over one of them, with an empty cache."""
    engine = hybrids[request.param]
    assert engine.post("/reset_prefix_cache")[0] == 200
    async with exact_gateway([engine], tmp_path) as running:
        yield running


async def test_a_shared_prefix_is_not_a_hit_until_its_end_is_kept(gateway: ServedGateway) -> None:
    made = HybridPrompts(gateway, 1)
    whole = made.after(made.tokens(8), 6)
    assert await made.ask(whole) == Asked(0, 0, 0)
    assert await made.ask(whole) == Asked(14, 14, 14)
    # Longer than the whole, whose end has its window or state.
    assert await made.ask(made.after(whole[: 14 * BLOCK_TOKENS], 2)) == Asked(14, 14, 14)
    # Shorter: full attention has its eight blocks, but no window or state ends there until the second time.
    begin = whole[: 8 * BLOCK_TOKENS]
    assert await made.ask(made.after(begin, 3)) == Asked(0, 0, 8)
    assert await made.ask(made.after(begin, 3)) == Asked(8, 8, 8)
    # Shorter than the window.
    short = whole[: 2 * BLOCK_TOKENS]
    assert await made.ask(made.after(short, 3)) == Asked(0, 0, 2)
    assert await made.ask(made.after(short, 3)) == Asked(2, 2, 2)


async def test_a_prompt_of_whole_blocks_is_predicted_by_state_before_its_last_block(
    gateway: ServedGateway,
) -> None:
    made = HybridPrompts(gateway, 2)
    whole = made.tokens(9)
    assert await made.ask(made.after(whole, 0)) == Asked(0, 0, 0)
    # The kept state ends with the ninth block. The engine computes that one again, and needs the state before it.
    assert await made.ask(whole) == Asked(0, 0, 8)
    assert await made.ask(whole) == Asked(8, 8, 8)


async def test_predicted_hits_stay_exact_while_blocks_of_all_groups_are_evicted(gateway: ServedGateway) -> None:
    """Prompts share prefixes of many lengths and exceed the engine's blocks several times."""
    made = HybridPrompts(gateway, 3)
    removed, asked = made.removed, await made.ask_many(80)
    assert [item.predicted for item in asked] == [item.cached for item in asked]
    assert made.removed - removed > 100
    assert sum(item.cached == item.full > 4 for item in asked) > 10
    assert sum(item.cached == 0 < item.full for item in asked) > 5
    assert sum(0 < item.cached < item.full for item in asked) > 0
