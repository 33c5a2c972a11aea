"""Two real engines with one node manager each: KV of one serves the other, and missing blocks are computed.

Blocks of an engine's KV caches round-trip through payloads, in every form of its caches.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvstore.connector.engine_params import FIELD, KvOutcome, LoadInstruction, outcome_in, packed_keys
from tests.patience import wait_until
from tests.program import ROOT
from tests.vllm.conftest import MODEL, PYTHON
from tests.vllm.real_engine import BLOCK_TOKENS, RealEngine, while_running
from tests.vllm.stored_blocks import StoreProcess, cut_after
from tests.vllm.storing_engine import storing_engine

pytestmark = pytest.mark.vllm
COMPLETIONS = "/v1/completions"
BLOCKS, TOKENS = 6, 6 * BLOCK_TOKENS + 8
"""Full blocks of each prompt, and its tokens."""
PROMPTS = 16
BLOCK_BYTES = 16_384
"""Two layers of two heads, 32 tokens and 32 dimensions, keys and values, of two bytes."""


@dataclass(frozen=True)
class Reply:
    """One response."""

    token_ids: list[int]
    cached: int
    outcome: KvOutcome | None


def prompt(number: int) -> list[int]:
    """Return a prompt of unique tokens."""
    return random.Random(number).choices(range(10, 1900), k=TOKENS)


def keys(number: int) -> tuple[int, ...]:
    """Return the routing keys that a gateway would assign to the prompt's blocks."""
    return tuple(1000 * number + index + 1 for index in range(BLOCKS))


def ask(engine: RealEngine, number: int, *, salt: str = "", **order: Any) -> Reply:
    """Send a prompt, with a load order if `order` has fields."""
    body: dict[str, Any] = {"model": "tiny", "prompt": prompt(number), "temperature": 0, "max_tokens": 32}
    body |= {"ignore_eos": True, "return_token_ids": True}
    if salt:
        body["cache_salt"] = salt
    if order:
        instruction = LoadInstruction(**{"keys": packed_keys(keys(number)), **order})
        body["kv_transfer_params"] = {FIELD: msgspec.to_builtins(instruction)}
    status, raw = engine.post(COMPLETIONS, body)
    assert status == 200, raw
    answer = json.loads(raw)
    cached = (answer["usage"]["prompt_tokens_details"] or {}).get("cached_tokens") or 0
    return Reply(answer["choices"][0]["token_ids"], cached, outcome_in(answer.get("kv_transfer_params")))


@pytest.fixture(scope="module")
def expected(logs: Path) -> list[list[int]]:
    """Return the responses of an engine without a connector to each prompt."""
    plain = RealEngine(PYTHON, MODEL, logs / "kv-plain.log")
    try:
        plain.start()
        plain.wait()
        return [ask(plain, number).token_ids for number in range(PROMPTS)]
    finally:
        plain.kill()


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[StoreProcess]]:
    """Run a node manager for each engine."""
    with ExitStack() as stack:
        made = [StoreProcess(tmp_path_factory.mktemp("node")) for _ in range(2)]
        for item in made:
            stack.callback(item.close)
            item.start()
        yield made


@pytest.fixture(scope="module")
def pair(expected: list[list[int]], stores: list[StoreProcess], logs: Path) -> Iterator[list[RealEngine]]:
    """Run two engines with one node each; they start when the engine without a connector has ended."""
    made = [storing_engine(store, logs / f"kv-{number}.log") for number, store in enumerate(stores)]
    with while_running(made):
        yield made


@pytest.fixture
def computed(pair: list[RealEngine], stores: list[StoreProcess], expected: list[list[int]]) -> Any:
    """Compute a prompt on the first engine, and wait until its node holds the blocks."""

    def compute(number: int, **order: Any) -> None:
        reply = ask(pair[0], number, tenant="acme", **order)
        assert reply.token_ids == expected[number]
        stores[0].wait_for_blocks(keys(number))

    return compute


def test_an_engine_responds_using_another_engines_blocks(
    pair: list[RealEngine], stores: list[StoreProcess], expected: list[list[int]], computed: Any
) -> None:
    computed(0)
    reply = ask(pair[1], 0, load_blocks=BLOCKS, holders=[stores[0].address])
    assert reply.token_ids == expected[0]
    assert reply.cached == BLOCKS * BLOCK_TOKENS
    assert reply.outcome is not None
    assert (reply.outcome.loaded_blocks, reply.outcome.reason) == (BLOCKS, "")
    assert (reply.outcome.loaded_bytes, reply.outcome.holder) == (BLOCKS * BLOCK_BYTES, stores[0].address)
    assert reply.outcome.seconds > 0


def test_loaded_blocks_are_in_the_engines_own_cache(
    pair: list[RealEngine], stores: list[StoreProcess], expected: list[list[int]], computed: Any
) -> None:
    computed(1)
    order = {"load_blocks": BLOCKS, "holders": [stores[0].address]}
    first, second = ask(pair[1], 1, **order), ask(pair[1], 1, **order)
    assert first.token_ids == second.token_ids == expected[1]
    assert second.cached == first.cached == BLOCKS * BLOCK_TOKENS
    assert second.outcome == KvOutcome()


def test_the_node_stores_the_tenant_and_routing_key_of_each_block(stores: list[StoreProcess], computed: Any) -> None:
    computed(2)
    blocks = stores[0].blocks()
    chain = [blocks[key] for key in keys(2)]
    assert [item.parent for item in chain] == [b"", *(item.key for item in chain[:-1])]
    assert {(item.tenant, item.tokens, item.length) for item in chain} == {("acme", BLOCK_TOKENS, BLOCK_BYTES)}
    assert {len(item.chain_hash) for item in chain} == {32}


def test_a_block_with_wrong_bytes_produces_other_tokens(
    pair: list[RealEngine], stores: list[StoreProcess], expected: list[list[int]], computed: Any
) -> None:
    """The control of all other tests: the engine accepts a block of another prompt under this prompt's key."""
    computed(3)
    computed(4)
    blocks = stores[0].blocks()
    for mine, other in zip(keys(3), keys(4), strict=True):
        stores[1].put(blocks[mine], stores[0].payload(blocks[other]))
    reply = ask(pair[1], 3, load_blocks=BLOCKS, holders=[stores[1].address])
    assert reply.outcome is not None
    assert reply.outcome.loaded_blocks == BLOCKS
    assert reply.token_ids != expected[3]


def test_a_salted_request_of_another_tenant_misses(
    pair: list[RealEngine], stores: list[StoreProcess], expected: list[list[int]], computed: Any
) -> None:
    computed(5)
    reply = ask(pair[1], 5, salt="another tenant's", load_blocks=BLOCKS, holders=[stores[0].address])
    assert reply.token_ids == expected[5]
    assert reply.cached == 0
    assert reply.outcome is not None
    assert (reply.outcome.loaded_blocks, reply.outcome.reason) == (0, "missing")


def test_blocks_missing_at_the_end_are_computed(
    pair: list[RealEngine], stores: list[StoreProcess], expected: list[list[int]], computed: Any
) -> None:
    computed(6)
    blocks = stores[0].blocks()
    for key in keys(6)[:4]:
        stores[1].put(blocks[key], stores[0].payload(blocks[key]))
    reply = ask(pair[1], 6, load_blocks=BLOCKS, holders=[stores[1].address])
    assert reply.token_ids == expected[6]
    assert reply.cached == 4 * BLOCK_TOKENS
    assert reply.outcome is not None
    assert (reply.outcome.loaded_blocks, reply.outcome.reason) == (4, "missing")


@pytest.mark.parametrize(("number", "whole"), [(7, 2), (8, 0)], ids=["behind two blocks", "within the first"])
def test_a_node_killed_during_a_load_costs_a_computation(
    pair: list[RealEngine],
    stores: list[StoreProcess],
    expected: list[list[int]],
    computed: Any,
    number: int,
    whole: int,
) -> None:
    computed(number)
    size = whole * BLOCK_BYTES + BLOCK_BYTES // 2
    with cut_after(stores[0].address, size, lambda: stores[0].end(signal.SIGKILL)) as address:
        reply = ask(pair[1], number, load_blocks=BLOCKS, holders=[address])
    try:
        assert reply.token_ids == expected[number]
        assert reply.outcome is not None
        assert reply.outcome.reason == "failed"
        assert reply.outcome.loaded_blocks <= whole
        assert reply.cached == reply.outcome.loaded_blocks * BLOCK_TOKENS
        assert stores[0].process is None
    finally:
        stores[0].start()


def test_a_corrupt_block_on_ssd_is_a_miss_and_computed(
    pair: list[RealEngine], stores: list[StoreProcess], expected: list[list[int]], computed: Any
) -> None:
    computed(9)
    facts = stores[0].blocks()[keys(9)[3]]
    payload = stores[0].payload(facts)
    stores[0].end()
    (file,) = [path for path in stores[0].directory.rglob("*") if path.is_file() and payload in path.read_bytes()]
    with file.open("r+b") as slots:
        slots.seek(file.read_bytes().index(payload) + 100)
        slots.write(bytes([payload[100] ^ 1]))
    stores[0].start()
    reply = ask(pair[1], 9, load_blocks=BLOCKS, holders=[stores[0].address])
    assert reply.token_ids == expected[9]
    assert reply.cached == 3 * BLOCK_TOKENS
    assert reply.outcome is not None
    assert (reply.outcome.loaded_blocks, reply.outcome.reason) == (3, "missing")
    assert stores[0].metric("headway_kv_corrupt_total") == 1


def test_a_waiting_load_delays_no_other_request(
    pair: list[RealEngine], stores: list[StoreProcess], expected: list[list[int]], computed: Any
) -> None:
    computed(10)
    stores[0].send(signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        try:
            waiting = pool.submit(ask, pair[1], 10, load_blocks=BLOCKS, holders=[stores[0].address])
            wait_until(lambda: _loading(pair[1]) == 1, "the load does not begin")
            others = [ask(pair[1], number).token_ids for number in (11, 12)]
            assert not waiting.done()
        finally:
            stores[0].send(signal.SIGCONT)
        reply = waiting.result()
    assert others == expected[11:13]
    assert reply.token_ids == expected[10]
    assert reply.outcome is not None
    assert (reply.outcome.loaded_blocks, reply.outcome.reason) == (BLOCKS, "")


def _loading(engine: RealEngine) -> float:
    """Return the number of the engine's requests that wait for their blocks."""
    pattern = rb'^vllm:num_requests_kv_fetch_by_stage\{[^}]*stage="in_progress"[^}]*\} (\S+)$'
    return sum(map(float, re.findall(pattern, engine.get("/metrics")[1], re.MULTILINE)))


def test_an_ephemeral_prompt_is_not_stored(
    pair: list[RealEngine], stores: list[StoreProcess], expected: list[list[int]], computed: Any
) -> None:
    assert ask(pair[0], 13, hint="ephemeral").token_ids == expected[13]
    computed(14)
    assert not set(keys(13)) & stores[0].blocks().keys()


def test_without_an_order_an_engine_hits_the_blocks_of_its_local_node(
    pair: list[RealEngine], stores: list[StoreProcess], expected: list[list[int]]
) -> None:
    before = stores[1].count()
    first = ask(pair[1], 15)
    wait_until(lambda: stores[1].count() == before + BLOCKS, "the node has not got the blocks")
    assert pair[1].post("/reset_prefix_cache")[0] == 200
    second = ask(pair[1], 15)
    assert first.token_ids == second.token_ids == expected[15]
    assert (first.cached, second.cached) == (0, BLOCKS * BLOCK_TOKENS)


@pytest.mark.parametrize(
    "check",
    ["paged_memory_check", "engine_memory_check"],
    ids=["blocks in every form", "prefetched blocks in the pool"],
)
def test_blocks_are_handled_as_the_engine_does(check: str) -> None:
    command = [PYTHON, "-m", f"tests.vllm.{check}"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
