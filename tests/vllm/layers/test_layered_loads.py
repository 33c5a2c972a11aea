"""Real engines that load and store layer by layer answer like an engine that computes everything."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from kvstore.connector.engine_params import FIELD, KvOutcome, LoadInstruction, outcome_in, packed_keys
from tests.vllm.real_engine import BLOCK_TOKENS, RealEngine, while_running
from tests.vllm.stored_blocks import StoreProcess, cut_after
from tests.vllm.storing_engine import storing_engine

pytestmark = pytest.mark.vllm
BLOCKS = 48
LOADED = 36
"""Their first layer is a part of its own: 36 blocks of 8 KiB."""
LAYER_BYTES = LOADED * 8192


@pytest.fixture(scope="module")
def logs_of_engines(logs: Path) -> list[Path]:
    return [logs / f"layers-{number}.log" for number in range(2)]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[StoreProcess]]:
    with ExitStack() as stack:
        made = [StoreProcess(tmp_path_factory.mktemp("node")) for _ in range(2)]
        for item in made:
            stack.callback(item.close)
            item.start()
        yield made


@pytest.fixture(scope="module")
def pair(stores: list[StoreProcess], logs_of_engines: list[Path]) -> Iterator[list[RealEngine]]:
    made = [
        storing_engine(
            store,
            log,
            "--no-async-scheduling",
            options={"layer_wise": True, "ask_node": False},
            VLLM_LOGGING_LEVEL="DEBUG",
        )
        for store, log in zip(stores, logs_of_engines, strict=True)
    ]
    with while_running(made):
        yield made


def keys(number: int) -> tuple[int, ...]:
    return tuple(1000 * number + index + 1 for index in range(BLOCKS))


def ask(
    engine: RealEngine, number: int, holders: list[str] | None = None, loaded: int = LOADED
) -> tuple[list[int], int, KvOutcome | None]:
    """Send a prompt, with a load order if there are holders; return tokens, cached tokens, and the outcome."""
    prompt = random.Random(number).choices(range(10, 1900), k=BLOCKS * BLOCK_TOKENS + 8)
    order = LoadInstruction(keys=packed_keys(keys(number)), load_blocks=loaded if holders else 0, holders=holders or [])
    body = {"model": "tiny", "prompt": prompt, "temperature": 0, "max_tokens": 16, "ignore_eos": True}
    body |= {"return_token_ids": True, "kv_transfer_params": {FIELD: msgspec.to_builtins(order)}}
    status, raw = engine.post("/v1/completions", body)
    assert status == 200, raw
    answer = json.loads(raw)
    cached = (answer["usage"]["prompt_tokens_details"] or {}).get("cached_tokens") or 0
    return answer["choices"][0]["token_ids"], cached, outcome_in(answer.get("kv_transfer_params"))


@pytest.fixture(scope="module")
def expected(pair: list[RealEngine], stores: list[StoreProcess]) -> list[list[int]]:
    """Compute prompts at the first engine, and let the second one measure a computation and a load."""
    made = [ask(pair[0], number)[0] for number in range(4)]
    for number in range(4):
        stores[0].wait_for_blocks(keys(number))
    ask(pair[1], 100)
    assert ask(pair[1], 0, [stores[0].address])[0] == made[0]
    return made


def layered(log: Path) -> int:
    return log.read_text().count("layer by layer")


def test_an_engine_computes_while_layers_arrive_and_answers_the_same(
    pair: list[RealEngine], stores: list[StoreProcess], expected: list[list[int]], logs_of_engines: list[Path]
) -> None:
    before = layered(logs_of_engines[1])
    tokens, cached, outcome = ask(pair[1], 1, [stores[0].address])
    assert layered(logs_of_engines[1]) == before + 1
    assert (tokens, cached) == (expected[1], LOADED * BLOCK_TOKENS)
    assert outcome is not None
    assert (outcome.loaded_blocks, outcome.holder, outcome.reason) == (LOADED, stores[0].address, "")
    stores[1].wait_for_blocks(keys(1)[LOADED:])


def test_blocks_stored_beside_the_computation_serve_another_engine(
    pair: list[RealEngine], stores: list[StoreProcess], expected: list[list[int]]
) -> None:
    """The second engine computed the end of the prompt in the step that loaded its beginning."""
    ask(pair[1], 2, [stores[0].address])
    stores[1].wait_for_blocks(keys(2)[LOADED:])
    assert pair[0].post("/reset_prefix_cache")[0] == 200
    holders = [stores[1].address, stores[0].address]
    tokens, cached, _ = ask(pair[0], 2, holders, BLOCKS)
    assert (tokens, cached) == (expected[2], BLOCKS * BLOCK_TOKENS)


def test_a_node_killed_between_two_layers_costs_a_computation(
    pair: list[RealEngine], stores: list[StoreProcess], expected: list[list[int]], logs_of_engines: list[Path]
) -> None:
    before = layered(logs_of_engines[1])
    size = LAYER_BYTES + LAYER_BYTES // 2
    with cut_after(stores[0].address, size, lambda: stores[0].end(signal.SIGKILL)) as address:
        tokens, cached, outcome = ask(pair[1], 3, [address])
    assert layered(logs_of_engines[1]) == before + 1
    assert (tokens, cached) == (expected[3], 0)
    assert outcome is not None
    assert (outcome.loaded_blocks, outcome.reason) == (0, "failed")
    assert ask(pair[1], 3)[0] == expected[3]
