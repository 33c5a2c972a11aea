"""GSP, generated shared prefixes: groups of prompts that share a prefix and differ after it.

The LBGR paper's benchmark (appendix A, after SGLang's generated-shared-prefix): 128 groups of 32 prompts; lengths of
512 to 8,192 tokens, assigned to the groups in turn; a share of 0.3 to 0.9 of each prompt is common to its group; random
order, or the worst order, in which the groups take turns; Poisson arrivals. A trace's blocks have 512 tokens, so only
whole blocks of the prefix are shared.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.workloads.arrival_pattern import poisson_times
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow

_Length = Annotated[int, Meta(ge=1, le=1_000_000)]


class SharedPrefixShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the workload; the defaults are the paper's."""

    qps: Annotated[float, Meta(gt=0)] = 12.0
    groups: Annotated[int, Meta(ge=1, le=100_000)] = 128
    prompts: Annotated[int, Meta(ge=1, le=100_000)] = 32
    """Number of prompts per group."""
    lengths: Annotated[tuple[_Length, ...], Meta(min_length=1)] = (512, 1024, 2048, 4096, 8192)
    """Lengths of the prompts in tokens, assigned to the groups in turn."""
    ratio: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Share of a prompt that is common to its group."""
    output_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] = 4
    order: Literal["random", "round_robin"] = "random"


def shared_prefix(seed: int, shape: SharedPrefixShape) -> Iterator[TraceRow]:
    """Yield all groups × prompts requests ordered by arrival; the same seed and shape give the same requests."""
    rng = random.Random(seed)
    order = [group for _ in range(shape.prompts) for group in range(shape.groups)]
    if shape.order == "random":
        rng.shuffle(order)
    ids = count()
    prefixes = [tuple(islice(ids, _shared_blocks(shape, group))) for group in range(shape.groups)]
    # Arrival times have no end.
    for group, at_s in zip(order, poisson_times(rng, shape.qps), strict=False):
        length = shape.lengths[group % len(shape.lengths)]
        own = -(-length // BLOCK_TOKENS) - len(prefixes[group])
        yield TraceRow(
            timestamp=round(at_s * 1000),
            input_length=length,
            output_length=shape.output_tokens,
            hash_ids=prefixes[group] + tuple(islice(ids, own)),
        )


def _shared_blocks(shape: SharedPrefixShape, group: int) -> int:
    return int(shape.lengths[group % len(shape.lengths)] * shape.ratio) // BLOCK_TOKENS
