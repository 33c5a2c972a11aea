"""Generates requests like those of the Mooncake tool&agent trace, from its published statistics and prefix shapes.

Published: mean 8,596 prompt and 182 output tokens, 59 % of prompt tokens seen before, 76 % of requests sharing at least
half their prompt (Mooncake Table 3, DualMap A.5), 23,608 requests in an hour. Known shapes: the prompts of one tool
have 12 common and 1–5 unique blocks, and outputs of 3 or 24–53 tokens. Those of another tool have 5 common and 1–3
unique blocks, and outputs of 16–30 tokens. All other requests are conversation, here `conversation_like`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.workloads.arrival_pattern import poisson_times
from simulator.workloads.conversation_like import WorkloadShape, conversation_like
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow

_FIRST_TOOL_ID = 1 << 40
"""An id above every id that a conversation can reach."""


class _Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool's requests: common blocks, unique tokens (minimum, mean above it, maximum), and output lengths."""

    common: tuple[int, ...]
    least: int
    mean_more: float
    most: int
    short_share: float
    """Share of outputs with 3 tokens."""
    answers: tuple[int, int]


_SEARCH = _Tool(
    common=tuple(range(_FIRST_TOOL_ID, _FIRST_TOOL_ID + 12)),
    least=22,
    mean_more=500,
    most=2230,
    short_share=0.6,
    answers=(24, 53),
)
_ROUTER = _Tool(
    common=tuple(range(_FIRST_TOOL_ID + 12, _FIRST_TOOL_ID + 17)),
    least=360,
    mean_more=247,
    most=1870,
    short_share=0.0,
    answers=(16, 30),
)


class ToolagentLikeShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The mix of requests; the defaults reproduce the published statistics."""

    # 23,608 requests in an hour.
    qps: Annotated[float, Meta(gt=0)] = 6.56
    """Mean requests per second over a long time."""
    search_share: Annotated[float, Meta(ge=0, le=0.9)] = 0.378
    """Share of requests of the tool with 12 common blocks."""
    router_share: Annotated[float, Meta(ge=0, le=0.9)] = 0.149
    """Share of requests of the tool with 5 common blocks; all others are conversation."""


def toolagent_like(seed: int, shape: ToolagentLikeShape) -> Iterator[TraceRow]:
    """Yield an endless sequence of requests ordered by arrival; the same seed and shape give the same requests."""
    chat_share = 1 - shape.search_share - shape.router_share
    if chat_share <= 0:
        raise ValueError("search_share and router_share leave nothing for conversation")
    rng = random.Random(seed)
    chats = conversation_like(seed, WorkloadShape(qps=shape.qps * chat_share))
    # After the common blocks of both tools.
    ids = count(_FIRST_TOOL_ID + 17)
    calls = poisson_times(rng, shape.qps * (1 - chat_share))
    call_at_s = next(calls)
    for chat in chats:
        while call_at_s * 1000 <= chat.timestamp:
            searches = rng.random() < shape.search_share / (1 - chat_share)
            yield _call(call_at_s, _SEARCH if searches else _ROUTER, rng, ids)
            call_at_s = next(calls)
        yield chat


def _call(at_s: float, tool: _Tool, rng: random.Random, ids: Iterator[int]) -> TraceRow:
    own = min(tool.most, tool.least + round(rng.expovariate(1 / tool.mean_more)))
    short = rng.random() < tool.short_share
    return TraceRow(
        timestamp=round(at_s * 1000),
        input_length=len(tool.common) * BLOCK_TOKENS + own,
        output_length=3 if short else rng.randint(*tool.answers),
        hash_ids=tool.common + tuple(islice(ids, -(-own // BLOCK_TOKENS))),
    )
