"""The complete command that starts an engine with one more flag, ready to paste."""

from __future__ import annotations

from shlex import quote
from urllib.parse import urlsplit

from controlplane.fleet.connect.engine_facts import SGLANG, EngineFacts
from controlplane.fleet.preflight.engine_flags import block_size_flag


def start_line(facts: EngineFacts, flag: str) -> str:
    """Return a command that ends with the flag, of what the engine told of itself; what it did not tell is missing."""
    sglang = facts.product == SGLANG
    program = "python -m sglang.launch_server --model-path" if sglang else "vllm serve"
    names = " ".join(map(quote, facts.names[:1] if sglang else facts.names))
    words = [program, quote(facts.weights), f"--served-model-name {names}", f"--port {urlsplit(facts.url).port}"]
    if facts.context_tokens:
        words.append(f"{'--context-length' if sglang else '--max-model-len'} {facts.context_tokens}")
    block_flag = flag.startswith(block_size_flag(0, sglang=sglang)[:-1])
    if facts.block_tokens and not block_flag:
        words.append(block_size_flag(facts.block_tokens, sglang=sglang))
    words.append("--enable-cache-report --enable-metrics" if sglang else "--enable-prompt-tokens-details")
    return " ".join([*words, flag])
