"""One ended request: its size, blocks, and outcome. It contains no prompt and no names.

Rows are sent in request batches (gateway.contracts.request_batch), and the request log stores the gateway's bytes
unchanged. gateway.contracts.stored_decision is a row with its complete decision. New fields are only added at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

BLOCK_TOKENS = 512
"""Block size of traces in Mooncake's format, independent of the pool's block size."""
HEAD_BLOCKS = 16
"""Number of first blocks in a row, for pools with smaller blocks."""


class TrafficRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One request. Times `*_at` in unix seconds, `*_after_s` in seconds since its arrival; None: not known."""

    arrived_at: float
    pool: str
    """Id of the pool."""
    prompt_tokens: int
    output_tokens: int | None
    blocks: tuple[int, ...]
    """One 64-bit name per 512 tokens, each for the complete prefix up to that point. Tokens without a name match no
    other prompt.
    """
    session: str
    """Keyed digest of the session id; empty: no session."""
    tenant: str
    """Keyed digest of the tenant."""
    priority: int
    outcome: str
    """completed, failed, rejected, cancelled, client_error or unanswered; running until the request ends."""
    late: bool
    """The request missed its objective: first token too late, rejected or failed."""
    first_token_after_s: float | None
    finished_after_s: float | None
    cached_tokens: int | None
    """Cached tokens as reported by the engine."""
    engines: int
    """Number of engines in the pool that accepted work."""
    policy_version: int
    head: tuple[int, ...]
    """Keys of the first blocks at the pool's block size, if it is smaller than the trace's. Placements that group equal
    prompt beginnings use these keys.
    """
    agent: str
    """Name of the calling agent, set by its application."""
    workflow: str
    """Keyed digest of the workflow id."""
    origin: str
    """Region of first contact if it differs from the pool's region, else empty."""


def trace_blocks(keys: Sequence[int], prompt_tokens: int, block_tokens: int) -> tuple[int, ...]:
    """Return one name per 512 tokens of a prompt, from chained keys of `block_tokens` tokens each.

    A name is the key of the block that contains the end of the 512 tokens, so it identifies at least this prefix. A
    partial last block has a name if a key reaches into it.
    """
    if block_tokens == BLOCK_TOKENS:
        return tuple(keys[: -(-prompt_tokens // BLOCK_TOKENS)])
    covered = min(prompt_tokens, len(keys) * block_tokens)
    if BLOCK_TOKENS % block_tokens == 0:
        names, per_name = -(-covered // BLOCK_TOKENS), BLOCK_TOKENS // block_tokens
        whole = tuple(keys[per_name - 1 :: per_name][:names])
        return whole if len(whole) == names else (*whole, keys[-1])
    last = len(keys) - 1
    return tuple(
        [
            keys[min(-(-end // block_tokens) - 1, last)]
            for end in range(BLOCK_TOKENS, covered + BLOCK_TOKENS, BLOCK_TOKENS)
        ]
    )


def trace_head(keys: Sequence[int], block_tokens: int) -> tuple[int, ...]:
    """Return the keys of the prompt's first blocks; empty if the pool's blocks are not smaller than a trace's."""
    return tuple(keys[:HEAD_BLOCKS]) if block_tokens < BLOCK_TOKENS else ()
