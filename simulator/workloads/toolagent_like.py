"""Generates requests like the Mooncake tool&agent trace's, from its published statistics and prefix shapes.

Published: mean 8,596 prompt and 182 output tokens, 59 % of prompt tokens seen before, 76 % of requests
sharing at least half their prompt (Mooncake Table 3, DualMap A.5), 23,608 requests in an hour. Known
shapes: one tool's prompts have 12 blocks in common and 1–5 of their own, and answers of 3 or of 24–53
tokens; another's have 5 and 1–3, and 16–30. The rest is conversation, here `conversation_like`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.workloads.conversation_like import WorkloadShape, conversation_like
from simulator.workloads.poisson_arrivals import poisson_times
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow

_FIRST_TOOL_ID = 1 << 40
"""Above every id that the conversation can reach."""


class _Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool's requests: common blocks, own tokens (least, mean beyond that, most) and answer lengths."""

    common: tuple[int, ...]
    least: int
    mean_more: float
    most: int
    short_share: float
    """Share of answers of 3 tokens."""
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
    """The mix; the defaults give the published statistics."""

    # 23,608 requests in an hour.
    qps: Annotated[float, Meta(gt=0)] = 6.56
    """Requests per second in the long run."""
    search_share: Annotated[float, Meta(ge=0, le=0.9)] = 0.378
    """Requests of the tool with 12 common blocks."""
    router_share: Annotated[float, Meta(ge=0, le=0.9)] = 0.149
    """Requests of the tool with 5 common blocks; the rest is conversation."""


def toolagent_like(seed: int, shape: ToolagentLikeShape) -> Iterator[TraceRow]:
    """Yield requests by arrival, without end; the same seed and shape give the same requests."""
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
