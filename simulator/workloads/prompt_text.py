"""Converts a trace's block ids back to prompts: equal ids give equal text, different ids different text.

Each block of 512 tokens is 2,048 bytes of ASCII, four bytes per token as the simulated engines count them. A block
opens with its own name, so that no two blocks agree, and continues with a part of a fixed text of plain words.
"""

from __future__ import annotations

import random
from functools import lru_cache

from simulator.engine_models.tokenizer import TOKEN_BYTES
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow

BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES
_WORDS = (
    "signal track junction the of and to platform engine carriage freight evening morning yard lamp whistle bridge "
    "tunnel valley river coal steam driver guard ticket station clock between under over along slow quick north south "
    "east west line branch siding switch lever frame block section clear caution danger journey timetable answer why"
)
_BOOK_BYTES = 65_536
_CACHED_BLOCKS = 4096
"""Number of cached block texts, at most 8 MiB; popular blocks are requested repeatedly."""


def prompt_text(row: TraceRow, number: int, *, max_tokens: int | None = None, edition: str = "") -> str:
    """Return the prompt of row `number`: exactly min(input_length, max_tokens) tokens of text.

    Prompts of one `edition` share text if their hash_ids agree; different editions share no text. A prompt longer than
    its ids continues with text that names the row, so that it is unique.
    """
    tokens = row.input_length if max_tokens is None else min(row.input_length, max_tokens)
    blocks = -(-tokens // BLOCK_TOKENS)
    names = [f"{edition}{block}" for block in row.hash_ids[:blocks]]
    names += [f"{edition}row {number}, block {index}" for index in range(len(names), blocks)]
    return "".join([_block(name) for name in names])[: tokens * TOKEN_BYTES]


@lru_cache(maxsize=_CACHED_BLOCKS)
def _block(name: str) -> str:
    label = f"[{name}] "[: BLOCK_BYTES // 2]
    book = _book()
    # A string seeds the same in every process, unlike its hash().
    start = random.Random(name).randrange(_BOOK_BYTES - BLOCK_BYTES)
    return label + book[start : start + BLOCK_BYTES - len(label)]


@lru_cache(maxsize=1)
def _book() -> str:
    words = _WORDS.split()
    return " ".join(random.Random(1).choices(words, k=_BOOK_BYTES // 4))[:_BOOK_BYTES]
