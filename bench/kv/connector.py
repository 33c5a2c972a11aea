"""Time saved by loading a prompt's KV: `eval export $(.ci/setup-vllm); python -m bench.kv.connector`.

Two vLLM CPU engines with one model of random weights, and a node manager, all on this machine. The first engine
computes a prompt and stores its blocks. The second loads the same prompt, and computes another one of the same length.
The output is the time to first token of each, the median of `--repeats`, and the connector's own figures of the load.
The ratio is valid for this machine and this small model: it shows the cost of the path, and says nothing about GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kvstore.connector.engine_params import FIELD, LoadInstruction, outcome_in, packed_keys
from tests.program import ROOT
from tests.vllm.real_engine import BLOCK_TOKENS, RealEngine
from tests.vllm.stored_blocks import SECRET, StoreProcess

CACHE_MIB, NODE_MIB, SLOT_KIB = 512, 1024, 1024
MAKE_MODEL = """
import sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from tests.vllm.tiny_model import make_tokenizer
folder, layers, hidden, tokens = sys.argv[1], *map(int, sys.argv[2:])
torch.manual_seed(17)
config = LlamaConfig(
    vocab_size=make_tokenizer(folder), hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
    num_attention_heads=hidden // 64, num_key_value_heads=hidden // 128, max_position_embeddings=tokens,
    bos_token_id=0, eos_token_id=1, pad_token_id=2, dtype="bfloat16",
)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
"""


class Row(NamedTuple):
    """The figures of one prompt length."""

    tokens: int
    mib: float
    computed_s: float
    """Time to first token if all blocks are computed."""
    loaded_s: float
    """Time to first token if all full blocks are loaded."""
    load_s: float
    """The part of it in which the connector waited for the bytes and wrote them."""


def main() -> None:
    """Start the engines, measure each length and print a table."""
    options = _options()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model, longest = folder / "model", max(options.lengths) + 64
        sizes = [str(item) for item in (options.layers, options.hidden, longest)]
        command = [options.python, "-c", MAKE_MODEL, str(model), *sizes]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        store = StoreProcess(folder / "node", dram_mib=NODE_MIB, ssd_mib=0, slot_kib=SLOT_KIB)
        stack.callback(store.end)
        store.start()
        engines = [_engine(options.python, model, folder / f"engine-{item}.log", store, longest) for item in "ab"]
        for engine in engines:
            stack.callback(engine.kill)
            engine.start()
        for engine in engines:
            engine.wait()
        _first_token(engines[0], _prompt(0, BLOCK_TOKENS), None)
        _first_token(engines[1], _prompt(0, BLOCK_TOKENS), None)
        print(f"{'tokens':>7} {'MiB':>7} {'computed s':>11} {'loaded s':>9} {'ratio':>6} {'load s':>7}")
        for length in options.lengths:
            row = _measured(engines, store, length, options.repeats)
            ratio = row.loaded_s / row.computed_s
            columns = f"{row.computed_s:>11.3f} {row.loaded_s:>9.3f} {ratio:>6.2f} {row.load_s:>7.3f}"
            print(f"{row.tokens:>7} {row.mib:>7.1f} {columns}", flush=True)


def _measured(engines: Sequence[RealEngine], store: StoreProcess, length: int, repeats: int) -> Row:
    computed, loaded, loads, mib = [], [], [], 0.0
    blocks = (length - 1) // BLOCK_TOKENS
    for turn in range(repeats):
        seed = length * 100 + 2 * turn
        keys = [(seed << 32) + index + 1 for index in range(length // BLOCK_TOKENS)]
        prompt = _prompt(seed, length)
        _first_token(engines[0], prompt, LoadInstruction(keys=packed_keys(keys)))
        store.wait_for_blocks(keys[:blocks])
        computed.append(_first_token(engines[1], _prompt(seed + 1, length), None)[0])
        order = LoadInstruction(keys=packed_keys(keys), load_blocks=blocks, holders=[store.address])
        seconds, answer = _first_token(engines[1], prompt, order)
        outcome = outcome_in(answer.get("kv_transfer_params"))
        if outcome is None or outcome.loaded_blocks != blocks:
            raise RuntimeError(f"not all blocks were loaded: {outcome}")
        loaded.append(seconds)
        loads.append(outcome.seconds)
        mib = outcome.loaded_bytes / (1 << 20)
    return Row(length, mib, *(statistics.median(item) for item in (computed, loaded, loads)))


def _first_token(engine: RealEngine, prompt: list[int], order: LoadInstruction | None) -> tuple[float, dict[str, Any]]:
    """Return the seconds until a one-token answer, and the answer."""
    body: dict[str, Any] = {"model": "tiny", "prompt": prompt, "max_tokens": 1, "temperature": 0}
    if order is not None:
        body["kv_transfer_params"] = {FIELD: msgspec.to_builtins(order)}
    began = time.monotonic()
    status, data = engine.post("/v1/completions", body)
    seconds = time.monotonic() - began
    if status != 200:
        raise RuntimeError(data.decode())
    return seconds, json.loads(data)


def _prompt(seed: int, length: int) -> list[int]:
    return random.Random(seed).choices(range(10, 1900), k=length)


def _engine(python: str, model: Path, log: Path, store: StoreProcess, longest: int) -> RealEngine:
    transfer = {
        "kv_connector": "HeadwayConnector",
        "kv_connector_module_path": "kvstore.connector.vllm_connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"node": store.address, "load_timeout_s": 60.0, "max_load_ratio": 0},
    }
    sizes = ("--max-model-len", str(longest), "--max-num-batched-tokens", str(longest))
    memory = ("--kv-cache-memory-bytes", str(CACHE_MIB << 20), "--num-gpu-blocks-override", "1024")
    flags = (*sizes, *memory, "--kv-transfer-config", json.dumps(transfer))
    return RealEngine(python, model, log, flags=flags, PYTHONPATH=str(ROOT), HEADWAY_KV_SECRET=SECRET)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=os.environ.get("VLLM_PYTHON", ""), help="Python with vLLM")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 2048, 4096])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=512)
    options = parser.parse_args()
    if not options.python:
        parser.error("name Python interpreter with vLLM installed: eval export $(.ci/setup-vllm)")
    return options


if __name__ == "__main__":
    main()
