"""Two real engines with our KV connector and one node each: behind a gateway, one loads blocks of the other.

In other files of this folder the tests give the orders; here the gateway names the blocks, learns them from the nodes,
and decides the loads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from routing.values import reasons
from tests.patience import until
from tests.vllm.attached import words
from tests.vllm.behind_gateway import Node, running_nodes, serving
from tests.vllm.real_engine import BLOCK_TOKENS, MODEL

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> Iterator[list[Node]]:
    with running_nodes(tmp_path_factory.mktemp("nodes"), logs / "behind") as made:
        yield made


async def test_an_engine_loads_another_engines_blocks_by_the_gateways_order(nodes: list[Node], tmp_path: Path) -> None:
    text = words(300, "behind the gateway")
    async with serving(nodes, tmp_path) as fleet:
        before = fleet.node_blocks("a")
        await fleet.only("engine-0")
        computed, record = await fleet.ask(text)
        blocks = (computed["usage"]["prompt_tokens"] - 1) // BLOCK_TOKENS
        assert blocks > 5
        assert record.load is None
        await until(lambda: fleet.node_blocks("a") >= max(before, 0.0) + blocks)

        await fleet.only("engine-1")
        loaded, record = await fleet.ask(text)
        fetch, load = record.decision.fetch, record.load
        assert fetch is not None and load is not None
        assert (record.decision.reason, fetch.node, fetch.blocks) == (reasons.LOAD, "a", blocks)
        assert (load.node, load.blocks, load.reason) == ("a", blocks, "")
        assert load.bytes > 0
        assert loaded["usage"]["prompt_tokens_details"]["cached_tokens"] == blocks * BLOCK_TOKENS
        assert loaded["choices"][0]["message"]["content"] == computed["choices"][0]["message"]["content"]
        assert not loaded.get("kv_transfer_params"), "what engine and gateway say to each other"

        again, record = await fleet.ask(text)
        assert record.load is None, "it is in the engine's own cache"
        assert record.decision.hit_tokens == blocks * BLOCK_TOKENS
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == record.decision.hit_tokens


async def test_the_next_turn_on_the_other_engine_loads_prompt_and_answer(nodes: list[Node], tmp_path: Path) -> None:
    """Both turns are token ids: the text of a tiny model's answer need not have the tokens that it was made of."""
    asked = [20 + number % 50 for number in range(120)]
    async with serving(nodes, tmp_path) as fleet:

        async def turn(prompt: list[int], **fields: Any) -> tuple[dict[str, Any], list[int]]:
            body = {"model": MODEL, "prompt": prompt, "max_tokens": 100, "temperature": 0, "ignore_eos": True, **fields}
            status, answer, _ = await fleet.gateway.post("/v1/completions", body)
            assert status == 200, answer
            return answer["usage"], answer["choices"][0].get("token_ids", [])

        before = fleet.node_blocks("a")
        await fleet.only("engine-0")
        _, answered = await turn(asked, return_token_ids=True)
        assert len(answered) == 100
        # The last token was never computed, and an engine that schedules ahead learns the one before too late.
        held = (len(asked) + len(answered) - 2) // BLOCK_TOKENS
        await until(lambda: fleet.node_blocks("a") >= max(before, 0.0) + held)
        await fleet.only("engine-1")
        usage, _ = await turn([*asked, *answered, 30, 31, 32], max_tokens=4)
        assert usage["prompt_tokens_details"]["cached_tokens"] >= held * BLOCK_TOKENS


async def test_a_dead_node_costs_the_load_and_not_the_response(nodes: list[Node], tmp_path: Path) -> None:
    text = words(300, "a node that goes")
    async with serving(nodes, tmp_path) as fleet:
        before = fleet.node_blocks("a")
        await fleet.only("engine-0")
        computed, _ = await fleet.ask(text)
        await until(lambda: fleet.node_blocks("a") > max(before, 0.0))
        await fleet.only("engine-1")
        await asyncio.to_thread(nodes[0].store.close)
        answer, record = await fleet.ask(text)
        assert answer["choices"][0]["message"]["content"] == computed["choices"][0]["message"]["content"]
        assert record.load is None or record.load.blocks == 0
