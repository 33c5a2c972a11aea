"""One request that ended: its size, its blocks, and its outcome. Contains no prompt and no name.

Rows travel in request batches (gateway.contracts.request_batch), and the request log keeps the bytes that the gateway
made. gateway.contracts.stored_decision is a row with its decision in full. Fields are only ever added, at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

BLOCK_TOKENS = 512
"""Block size of traces in Mooncake's form, whatever the pool's own is."""
HEAD_BLOCKS = 16
"""First blocks of a pool with smaller ones that a row names."""


class TrafficRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One request. Times `*_at` in unix seconds, `*_after_s` in seconds since it arrived; None: not known."""

    arrived_at: float
    pool: str
    """Id of the pool."""
    prompt_tokens: int
    output_tokens: int | None
    blocks: tuple[int, ...]
    """One 64-bit name per 512 tokens, each of the whole prefix up to there; fewer: the rest is like no other."""
    session: str
    """Keyed digest of the session's id; empty: it had none."""
    tenant: str
    """Keyed digest likewise."""
    priority: int
    outcome: str
    """completed, failed, rejected, cancelled, client_error or unanswered; running while the request is."""
    late: bool
    """The objective was missed: first token too late, rejected or failed."""
    first_token_after_s: float | None
    finished_after_s: float | None
    cached_tokens: int | None
    """As the engine reported it."""
    engines: int
    """Engines of the pool that took work."""
    policy_version: int
    head: tuple[int, ...]
    """Keys of the first blocks at the pool's own size, where that is smaller than a trace's; placements that keep equal
    beginnings together use these.
    """
    agent: str
    """Name of the agent that asked, as its application gives it."""
    workflow: str
    """Keyed digest of its workflow's id."""
    origin: str
    """Region of its first contact where that is not the pool's; empty: the pool's."""


def trace_blocks(keys: Sequence[int], prompt_tokens: int, block_tokens: int) -> tuple[int, ...]:
    """Return one name per 512 tokens of a prompt from its chained keys of `block_tokens` tokens each.

    A name is the key of the block in which the 512 tokens end, so it identifies at least this prefix. A partial last
    block has a name where a key reaches into it.
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
    """Return the keys of the prompt's first blocks; none where a trace's blocks are no larger."""
    return tuple(keys[:HEAD_BLOCKS]) if block_tokens < BLOCK_TOKENS else ()
