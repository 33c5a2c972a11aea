"""Conversations whose context grows turn by turn, as the LBGR paper derives them from ShareGPT and UltraChat.

From its appendix A: 128 clients with one conversation each of 2, 4, 6, or 8 rounds; each round adds 1,024 tokens from
the user. A round's prompt is the whole history and the new message. Sessions start at random times, and users think for
some time between a response and their next message.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, islice
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.workloads.arrival_pattern import poisson_times
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow

_Tokens = Annotated[int, Meta(ge=1, le=1_000_000)]


class MultiTurnChatShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the workload; the defaults are the paper's. `sessions` of 0 means an endless workload."""

    qps: Annotated[float, Meta(gt=0)] = 12.0
    """Mean requests per second over a long time."""
    sessions: Annotated[int, Meta(ge=0, le=10_000_000)] = 128
    rounds: Annotated[tuple[Annotated[int, Meta(ge=1, le=1000)], ...], Meta(min_length=1)] = (2, 4, 6, 8)
    """Numbers of rounds, assigned to the sessions in turn."""
    user_tokens: _Tokens = 1024
    system_tokens: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Length of the opening that all sessions share."""
    output_tokens: _Tokens = 4
    think_s: Annotated[float, Meta(gt=0)] = 20.0
    """Mean seconds from a request to the next one of its session."""


@dataclass(slots=True, eq=False)
class _Session:
    """One conversation: its name, the ids of its full blocks, its history, and its remaining rounds."""

    name: str
    blocks: list[int]
    tokens: int
    rounds: int


def multi_turn_chat(seed: int, shape: MultiTurnChatShape) -> Iterator[TraceRow]:
    """Yield requests ordered by arrival; the same seed and shape give the same requests."""
    rng = random.Random(seed)
    ids = count()
    system = tuple(islice(ids, shape.system_tokens // BLOCK_TOKENS))
    mean_rounds = sum(shape.rounds) / len(shape.rounds)
    openings = poisson_times(rng, shape.qps / mean_rounds)
    numbers = islice(count(), shape.sessions or None)
    due: list[tuple[float, int, _Session]] = []
    opening = _next_opening(numbers, openings)
    while opening is not None or due:
        if opening is not None and (not due or opening[0] < due[0][0]):
            at_s, number = opening
            rounds = shape.rounds[number % len(shape.rounds)]
            session = _Session(f"chat-{number}", list(system), shape.system_tokens, rounds)
            opening = _next_opening(numbers, openings)
        else:
            at_s, number, session = heappop(due)
        yield _row(at_s, session, ids, shape)
        session.rounds -= 1
        if session.rounds:
            # Each session is due once at most, so its number keeps sessions from being compared.
            heappush(due, (at_s + rng.expovariate(1 / shape.think_s), number, session))


def _next_opening(numbers: Iterator[int], openings: Iterator[float]) -> tuple[float, int] | None:
    number = next(numbers, None)
    return None if number is None else (next(openings), number)


def _row(at_s: float, session: _Session, ids: Iterator[int], shape: MultiTurnChatShape) -> TraceRow:
    session.tokens += shape.user_tokens
    session.blocks += islice(ids, session.tokens // BLOCK_TOKENS - len(session.blocks))
    # A partial block is new in each round, since the next round fills it.
    partial = tuple(islice(ids, int(session.tokens % BLOCK_TOKENS > 0)))
    row = TraceRow(
        timestamp=round(at_s * 1000),
        input_length=session.tokens,
        output_length=shape.output_tokens,
        hash_ids=(*session.blocks, *partial),
        session_id=session.name,
    )
    session.tokens += shape.output_tokens
    return row
