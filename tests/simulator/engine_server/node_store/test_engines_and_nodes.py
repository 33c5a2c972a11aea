"""Simulated engines store their blocks on real node managers and load blocks that others computed."""

from __future__ import annotations

import asyncio
import json
from array import array
from typing import Any

import pytest

from kvstore.connector.engine_params import KvOutcome, outcome_in, packed_keys
from kvstore.keys.block_keys import token_block_keys
from kvstore.node.node_manager import NodeManager
from kvstore.tiers.block_facts import BlockFacts, checksum_of
from kvstore.transfer.frames import ContentsPage, PageOf
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.tokenizer import render_chat, tokenize
from simulator.engine_server.node_store.payloads import Payloads, chain_hashes
from tests.kvstore.kv_blocks import KEYRING, a_client, address, node
from tests.patience import until
from tests.simulator.conftest import RunningEngine, StartEngine

BLOCK = 16
PROFILE = EngineProfile(
    block_tokens=BLOCK, num_blocks=64, recompute_last_block=True, kv_bytes_per_token=64, link_bytes_per_s=1e9,
    prefill_per_token_s=0.1,
)  # fmt: skip
"""Prefills so slow that loading pays whatever the machine does meanwhile."""
PROMPT = "abcd" * 160
BLOCKS = len(tokenize(PROMPT)) // BLOCK
KEYS = list(range(1, BLOCKS + 1))


def big(**changes: Any) -> Any:
    return node(slots={"dram_slots": 64, **changes})


async def engine(start: StartEngine, manager: NodeManager, **changes: Any) -> RunningEngine:
    fields = {"profile": PROFILE, "kv_node": address(manager), "kv_keyring": KEYRING, "kv_bytes_per_token": 64}
    return await start(**{**fields, **changes})


def order(holders: list[str], blocks: int = BLOCKS, **more: Any) -> dict[str, Any]:
    said = {"keys": packed_keys(KEYS), "load_blocks": blocks, "holders": holders, "tenant": "acme", **more}
    return {"headway": said}


async def ask(
    running: RunningEngine, params: dict[str, Any] | None = None, **body: Any
) -> tuple[dict[str, Any], KvOutcome | None]:
    asked = {"prompt": PROMPT, "max_tokens": 2, **body, **({"kv_transfer_params": params} if params else {})}
    async with running.http.post(running.url + "/v1/completions", json=asked) as response:
        answer = await response.json()
        assert response.status == 200, answer
    return answer, outcome_in(answer.get("kv_transfer_params"))


async def settled(running: RunningEngine) -> None:
    store = running.server.runtime.store
    assert store is not None
    assert await asyncio.to_thread(store.settled, 20.0)


def cached(answer: dict[str, Any]) -> int:
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


async def test_one_engine_loads_blocks_that_another_computed(start_engine: StartEngine) -> None:
    with big() as manager:
        first, second = await engine(start_engine, manager), await engine(start_engine, manager)
        answer, outcome = await ask(first, order([], 0))
        assert (cached(answer), outcome) == (0, KvOutcome())
        await settled(first)
        answer, outcome = await ask(second, order([address(manager)]))
        assert outcome is not None
        assert (outcome.loaded_blocks, outcome.loaded_bytes, outcome.reason) == (BLOCKS, BLOCKS * BLOCK * 64, "")
        assert outcome.holder == address(manager)
        assert cached(answer) >= (BLOCKS - 1) * BLOCK
        store = second.server.runtime.store
        assert store is not None
        assert (store.loads.loaded, store.loads.wrong) == (BLOCKS, 0)
        second.server.runtime.model.check()


async def test_prefetched_blocks_are_in_the_engine_before_the_prompt(start_engine: StartEngine) -> None:
    with big() as manager:
        first, second = await engine(start_engine, manager), await engine(start_engine, manager)
        await ask(first, order([], 0))
        await settled(first)
        prefetch = order([], 5, prefetch_rank=2)
        _, outcome = await ask(second, prefetch, prompt="1", max_tokens=1)
        assert outcome is not None
        assert (outcome.loaded_blocks, outcome.reason) == (5, "")
        store = second.server.runtime.store
        assert store is not None
        assert len(store.prefetched) == 5
        _, again = await ask(second, prefetch, prompt="1", max_tokens=1)
        assert again is not None
        assert again.loaded_blocks == 0
        answer, outcome = await ask(second, order([], 0))
        assert (cached(answer), outcome) == (5 * BLOCK, KvOutcome())
        assert (len(store.prefetched), store.loads.loaded) == (0, 5)
        second.server.runtime.model.check()


async def test_a_prefetch_of_a_higher_rank_gives_way(start_engine: StartEngine) -> None:
    with big() as manager:
        first, second = await engine(start_engine, manager), await engine(start_engine, manager)
        await ask(first, order([], 0))
        await settled(first)
        store = second.server.runtime.store
        assert store is not None
        await ask(second, order([], 6, prefetch_rank=2), prompt="1", max_tokens=1)
        _, refused = await ask(second, order([], 8, prefetch_rank=2), prompt="1", max_tokens=1)
        assert refused is not None
        assert (refused.loaded_blocks, len(store.prefetched)) == (0, 6), "a tenth of 64 blocks"
        _, urgent = await ask(second, order([], 8, prefetch_rank=0), prompt="1", max_tokens=1)
        assert urgent is not None
        assert (urgent.loaded_blocks, len(store.prefetched)) == (2, 6)


async def test_a_prefetch_for_another_salt_finds_nothing(start_engine: StartEngine) -> None:
    with big() as manager:
        first, second = await engine(start_engine, manager), await engine(start_engine, manager)
        await ask(first, order([], 0))
        await settled(first)
        _, outcome = await ask(second, order([], 5, prefetch_rank=2), prompt="1", max_tokens=1, cache_salt="other")
        assert outcome is not None
        assert (outcome.loaded_blocks, outcome.reason) == (0, "missing")


async def test_nodes_learn_routing_keys_tenant_and_client_name(start_engine: StartEngine) -> None:
    with big() as manager, a_client() as client:
        first = await engine(start_engine, manager)
        await ask(first, order([], 0))
        await settled(first)
        page = await asyncio.to_thread(client.call, address(manager), ContentsPage(0, 100))
        assert isinstance(page, PageOf)
        facts = [item for item, _ in page.blocks]
        assert [fact.routing_key for fact in facts] == KEYS
        assert {fact.tenant for fact in facts} == {"acme"}
        assert [fact.parent for fact in facts] == [b"", *(fact.key for fact in facts[:-1])]
        name = f"127.0.0.1:{first.settings.port}"
        # The server counts a transfer when it ends, which may be after the last block can be read.
        await until(lambda: name in manager.server.links.links())
        assert manager.server.links.links()[name].received_bytes == BLOCKS * BLOCK * 64


async def test_a_stream_reports_the_outcome_in_its_last_chunk(start_engine: StartEngine) -> None:
    with big() as manager:
        first, second = await engine(start_engine, manager), await engine(start_engine, manager)
        await ask(first)
        await settled(first)
        params = order([address(manager)])
        for path, body in (
            ("/v1/completions", {"prompt": PROMPT}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ):
            asked = {**body, "max_tokens": 3, "stream": True, "kv_transfer_params": params}
            async with second.http.post(second.url + path, json=asked) as response:
                lines = [line async for line in response.content if line.startswith(b"data: {")]
            outcomes = [outcome_in(json.loads(line[6:]).get("kv_transfer_params")) for line in lines]
            assert [outcome is not None for outcome in outcomes] == [False] * (len(lines) - 1) + [True]


async def test_another_salt_has_no_hits(start_engine: StartEngine) -> None:
    with big() as manager:
        first, second = await engine(start_engine, manager), await engine(start_engine, manager)
        await ask(first, order([], 0), cache_salt="mine")
        await settled(first)
        _, outcome = await ask(second, order([address(manager)]), cache_salt="theirs")
        assert outcome is not None
        assert (outcome.loaded_blocks, outcome.reason) == (0, "missing")
        _, outcome = await ask(second, order([address(manager)]), cache_salt="mine")
        assert outcome is not None
        assert outcome.loaded_blocks == BLOCKS


async def test_a_dead_node_costs_a_prefill_and_no_error(start_engine: StartEngine) -> None:
    with big() as manager:
        first, second = await engine(start_engine, manager), await engine(start_engine, manager)
        expected, _ = await ask(first)
        await settled(first)
        manager.stop()
        answer, outcome = await ask(second, order([address(manager)]))
        assert outcome is not None
        assert (outcome.loaded_blocks, outcome.reason) == (0, "failed")
        assert answer["usage"]["completion_tokens"] == expected["usage"]["completion_tokens"]
        await settled(second)
        store = second.server.runtime.store
        assert store is not None
        assert store.saves.failed == BLOCKS


async def test_bytes_that_do_not_match_their_tokens_are_counted_and_recomputed(
    start_engine: StartEngine,
) -> None:
    payloads = Payloads("demo", BLOCK, 64)
    with big() as manager, a_client() as client:
        second = await engine(start_engine, manager)
        tokens = array("I", tokenize(PROMPT))
        names = chain_hashes(tokens, BLOCK, 2)
        wrong = payloads.payload(names[1])
        key = payloads.keys("").key(names[0])
        facts = BlockFacts(key, len(wrong), names[0], b"", BLOCK, "acme", checksum_of(wrong))
        await asyncio.to_thread(client.put, address(manager), [(facts, wrong)])
        answer, outcome = await ask(second, order([address(manager)]))
        assert outcome is not None
        assert (outcome.loaded_blocks, cached(answer)) == (0, 0)
        store = second.server.runtime.store
        assert store is not None
        assert store.loads.wrong == 1


async def test_a_load_slower_than_computing_is_abandoned(start_engine: StartEngine) -> None:
    # 64 bytes per token over this link take a thousand times as long as the prefill.
    slow = EngineProfile(
        block_tokens=BLOCK, num_blocks=64, recompute_last_block=True, kv_bytes_per_token=64,
        prefill_per_token_s=0.001, link_bytes_per_s=64.0,
    )  # fmt: skip
    with big() as own, big() as other:
        first = await engine(start_engine, other)
        second = await engine(start_engine, own, profile=slow, time_scale=1.0)
        await ask(first)
        await settled(first)
        answer, outcome = await ask(second, order([address(other)]))
        assert outcome is not None
        assert (outcome.loaded_blocks, outcome.reason, cached(answer)) == (0, "late", 0)


async def test_an_ephemeral_prompt_is_not_stored_and_a_stored_one_can_be_loaded_in_part(
    start_engine: StartEngine,
) -> None:
    with big() as manager:
        first, second = await engine(start_engine, manager), await engine(start_engine, manager)
        await ask(first, order([], 0, hint="ephemeral"), prompt="wxyz" * 160)
        await settled(first)
        assert manager.store.counts.stored == 0
        await ask(first, prompt=PROMPT[: 4 * BLOCK * 4])
        await settled(first)
        kept = manager.store.counts.stored
        answer, outcome = await ask(second, order([address(manager)]))
        assert outcome is not None
        assert 0 < kept < BLOCKS
        assert (outcome.loaded_blocks, outcome.reason, cached(answer)) == (kept, "missing", kept * BLOCK)


async def test_unknown_addresses_in_requests_are_not_contacted_and_invalid_orders_rejected(
    start_engine: StartEngine,
) -> None:
    with big() as manager:
        second = await engine(start_engine, manager)
        _, outcome = await ask(second, order(["198.51.100.1:80", "nowhere", "localhost.evil:1"]))
        assert outcome is not None
        assert (outcome.loaded_blocks, outcome.reason) == (0, "missing")
        asked = {"prompt": PROMPT, "kv_transfer_params": {"headway": {"load_blocks": -1}}}
        async with second.http.post(second.url + "/v1/completions", json=asked) as response:
            assert response.status == 400


async def test_an_engine_without_a_node_ignores_orders(start_engine: StartEngine) -> None:
    plain = await start_engine(profile=PROFILE)
    answer, outcome = await ask(plain, order(["127.0.0.1:1"]))
    assert outcome is None
    assert cached(answer) == 0


async def test_loaded_blocks_are_published_in_kv_events_with_their_tokens(
    start_engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with big() as manager:
        first, second = await engine(start_engine, manager), await engine(start_engine, manager)
        await ask(first)
        await settled(first)
        events: list[Any] = []
        monkeypatch.setattr(second.server.runtime._publisher, "publish", events.extend)
        await ask(second, order([address(manager)]))
        loaded = events[0]
        assert (len(loaded.block_hashes), loaded.parent_block_hash, loaded.medium) == (BLOCKS, None, "GPU")
        assert loaded.token_ids == list(tokenize(PROMPT))[: BLOCKS * BLOCK]


async def chat(running: RunningEngine, turns: list[str], params: dict[str, Any]) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": turn} for number, turn in enumerate(turns)]
    asked = {"messages": messages, "max_tokens": 100, "kv_transfer_params": params}
    async with running.http.post(running.url + "/v1/chat/completions", json=asked) as response:
        assert response.status == 200
        return dict(await response.json())


@pytest.mark.parametrize("more", ["", "!"], ids=["whole tokens", "a padded last token"])
async def test_the_next_turn_on_another_engine_loads_prompt_and_answer(start_engine: StartEngine, more: str) -> None:
    with big() as manager:
        first, second = await engine(start_engine, manager), await engine(start_engine, manager)
        seed, asked = 7, [PROMPT + more]
        keys = token_block_keys(seed, tokenize(render_chat([("user", asked[0])])), BLOCK)
        answer = await chat(
            first, asked, {"headway": {"keys": packed_keys(keys), "hint": "context_cache", "pin_s": 60}}
        )
        await settled(first)
        turns = [*asked, answer["choices"][0]["message"]["content"], "go on"]
        tokens = tokenize(render_chat(zip(("user", "assistant", "user"), turns, strict=True)))
        held = (answer["usage"]["total_tokens"] - 1) // BLOCK
        assert held > len(keys) + 5
        keys = token_block_keys(seed, tokens, BLOCK)[:held]
        # The prompt is pinned, and the answer is not part of it.
        facts = manager.store.catalog.called(list(keys), 4096)
        assert {item.facts.routing_key for item in facts} == set(keys)
        params = {"headway": {"keys": packed_keys(keys), "load_blocks": held, "holders": [address(manager)]}}
        assert cached(await chat(second, turns, params)) == held * BLOCK
        # The engine that computed the answer holds it, too.
        assert cached(await chat(first, turns, {"headway": {}})) == held * BLOCK
