"""Real engines whose blocks have other bytes, on one node: two tensor-parallel ranks, a LoRA adapter, an FP8 cache.

SGLang's hierarchical cache with SGLang's own classes, where SGLANG_PATH names its modules.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import wait_until
from tests.program import ROOT
from tests.vllm.conftest import MODEL, PYTHON
from tests.vllm.real_engine import BLOCK_TOKENS, RealEngine, while_running
from tests.vllm.stored_blocks import SECRET, StoreProcess
from tests.vllm.storing_engine import storing_engine

pytestmark = pytest.mark.vllm
BLOCKS = 6
PROMPT = random.Random(7).choices(range(10, 1900), k=BLOCKS * BLOCK_TOKENS + 8)
RANKS = ("--tensor-parallel-size", "2")
LORA = ("--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"tuned={MODEL / 'adapter'}")
FP8 = ("--kv-cache-dtype", "fp8")
SGLANG = os.environ.get("SGLANG_PATH", "")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    made = StoreProcess(tmp_path_factory.mktemp("node"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def ask(engine: RealEngine, model: str = "tiny") -> tuple[list[int], int]:
    """Return the answer's tokens, and how many of the prompt were cached."""
    body = {"model": model, "prompt": PROMPT, "temperature": 0, "max_tokens": 32, "ignore_eos": True}
    status, raw = engine.post("/v1/completions", body | {"return_token_ids": True})
    assert status == 200, raw
    answer = json.loads(raw)
    cached = (answer["usage"]["prompt_tokens_details"] or {}).get("cached_tokens") or 0
    return answer["choices"][0]["token_ids"], cached


def stored(engine: RealEngine, store: StoreProcess, blocks: int, model: str = "tiny") -> list[int]:
    """Compute the prompt, whose blocks the node does not have, and load them; return the answer's tokens."""
    before = store.count()
    computed, cached = ask(engine, model)
    assert cached == 0
    wait_until(lambda: store.count() == before + blocks, "the node has not got the blocks")
    assert engine.post("/reset_prefix_cache")[0] == 200
    assert ask(engine, model) == (computed, BLOCKS * BLOCK_TOKENS)
    assert store.count() == before + blocks
    assert engine.post("/reset_prefix_cache")[0] == 200
    return computed


def test_each_rank_loads_its_own_bytes(store: StoreProcess, logs: Path) -> None:
    with while_running([storing_engine(store, logs / "ranks.log", *RANKS)]) as (engine,):
        stored(engine, store, 2 * BLOCKS)


def test_an_adapter_and_an_fp8_cache_have_blocks_of_their_own(store: StoreProcess, logs: Path) -> None:
    made = [storing_engine(store, logs / f"layouts-{at}.log", *flags) for at, flags in enumerate((LORA, FP8))]
    with while_running(made) as (adapted, quantized):
        base = stored(adapted, store, BLOCKS)
        assert stored(adapted, store, BLOCKS, "tuned") != base
        assert ask(adapted) == (base, BLOCKS * BLOCK_TOKENS)
        stored(quantized, store, BLOCKS)


@pytest.mark.skipif(not SGLANG, reason="SGLANG_PATH is not set: pip install --target PATH --no-deps sglang")
def test_pages_of_one_engine_are_loaded_by_another_in_every_layout(tmp_path: Path) -> None:
    store = StoreProcess(tmp_path)
    try:
        store.start()
        done = subprocess.run(
            [PYTHON, "-m", "tests.vllm.layers.hicache_check", store.address],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": SGLANG, "HEADWAY_KV_SECRET": SECRET, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        assert store.count() == 36
    finally:
        store.close()
