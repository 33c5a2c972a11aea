"""Groups of prompts that share a prefix and differ after it: generated ones, and questions on long documents.

Both are benchmarks of the LBGR paper (appendix A), with random order, or the worst order, in which the groups take
turns, and Poisson arrivals. A trace's blocks have 512 tokens, so only whole blocks of the prefix are shared.

- GSP, after SGLang's generated-shared-prefix: 128 groups of 32 prompts; lengths of 512 to 8,192 tokens, assigned to the
  groups in turn; a share of 0.3 to 0.9 of each prompt is common to its group.
- Document QA, from LooGLE: 512 documents, each with a set of questions and cut to 1,024, 2,048, 4,096, or 8,192 tokens.
  LooGLE has 6,448 questions on 776 documents, 8.3 per document.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.workloads.arrival_pattern import poisson_times
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow

_Length = Annotated[int, Meta(ge=1, le=1_000_000)]


class _GroupedShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of both workloads."""

    qps: Annotated[float, Meta(gt=0)] = 12.0
    output_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] = 4
    order: Literal["random", "round_robin"] = "random"


class SharedPrefixShape(_GroupedShape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the workload; the defaults are the paper's."""

    groups: Annotated[int, Meta(ge=1, le=100_000)] = 128
    prompts: Annotated[int, Meta(ge=1, le=100_000)] = 32
    """Number of prompts per group."""
    lengths: Annotated[tuple[_Length, ...], Meta(min_length=1)] = (512, 1024, 2048, 4096, 8192)
    """Lengths of the prompts in tokens, assigned to the groups in turn."""
    ratio: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Share of a prompt that is common to its group."""


class DocumentQaShape(_GroupedShape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the workload; the defaults are the paper's."""

    documents: Annotated[int, Meta(ge=1, le=1_000_000)] = 512
    questions: Annotated[int, Meta(ge=1, le=10_000)] = 8
    """Number of questions per document."""
    lengths: Annotated[tuple[_Length, ...], Meta(min_length=1)] = (1024, 2048, 4096, 8192)
    """Lengths of the documents in tokens, assigned in turn."""
    question_tokens: Annotated[int, Meta(ge=1, le=100_000)] = 40
    """Mean length of a question; lengths are uniform between 0.5 and 1.5 times the mean."""


def shared_prefix(seed: int, shape: SharedPrefixShape) -> Iterator[TraceRow]:
    """Yield all groups × prompts requests ordered by arrival; the same seed and shape give the same requests."""
    lengths = [shape.lengths[group % len(shape.lengths)] for group in range(shape.groups)]
    shared = [int(length * shape.ratio) // BLOCK_TOKENS for length in lengths]
    return _grouped(random.Random(seed), shape, shape.prompts, shared, lambda group: lengths[group], None)


def document_qa(seed: int, shape: DocumentQaShape) -> Iterator[TraceRow]:
    """Yield all documents × questions requests ordered by arrival; the same seed and shape give the same requests."""
    rng, half = random.Random(seed), shape.question_tokens // 2
    lengths = [shape.lengths[document % len(shape.lengths)] for document in range(shape.documents)]

    def asked(document: int) -> int:
        return lengths[document] + max(1, shape.question_tokens + rng.randint(-half, half))

    return _grouped(rng, shape, shape.questions, [length // BLOCK_TOKENS for length in lengths], asked, "document")


def _grouped(
    rng: random.Random,
    shape: _GroupedShape,
    prompts: int,
    shared: Sequence[int],
    length_of: Callable[[int], int],
    session: str | None,
) -> Iterator[TraceRow]:
    """Yield `prompts` requests per group. `shared` are the blocks that all prompts of a group share."""
    order = [group for _ in range(prompts) for group in range(len(shared))]
    if shape.order == "random":
        rng.shuffle(order)
    ids = count()
    prefixes = [tuple(islice(ids, blocks)) for blocks in shared]
    # Arrival times have no end.
    for group, at_s in zip(order, poisson_times(rng, shape.qps), strict=False):
        length = length_of(group)
        yield TraceRow(
            timestamp=round(at_s * 1000),
            input_length=length,
            output_length=shape.output_tokens,
            hash_ids=prefixes[group] + tuple(islice(ids, -(-length // BLOCK_TOKENS) - shared[group])),
            session_id=None if session is None else f"{session}-{group}",
        )
