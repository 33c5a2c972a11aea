"""Questions on long documents, as the LBGR paper derives them from LooGLE.

From its appendix A: 512 documents, each with a set of questions and cut to 1,024, 2,048, 4,096, or 8,192 tokens; random
order, or one question per document in turn; Poisson arrivals. LooGLE has 6,448 questions on 776 documents, 8.3 per
document.
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


class DocumentQaShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the workload; the defaults are the paper's."""

    qps: Annotated[float, Meta(gt=0)] = 12.0
    documents: Annotated[int, Meta(ge=1, le=1_000_000)] = 512
    questions: Annotated[int, Meta(ge=1, le=10_000)] = 8
    """Number of questions per document."""
    lengths: Annotated[tuple[_Length, ...], Meta(min_length=1)] = (1024, 2048, 4096, 8192)
    """Lengths of the documents in tokens, assigned in turn."""
    question_tokens: Annotated[int, Meta(ge=1, le=100_000)] = 40
    """Mean length of a question; lengths are uniform between 0.5 and 1.5 times the mean."""
    output_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] = 4
    order: Literal["random", "round_robin"] = "random"


def document_qa(seed: int, shape: DocumentQaShape) -> Iterator[TraceRow]:
    """Yield all documents × questions requests ordered by arrival; the same seed and shape give the same requests."""
    rng = random.Random(seed)
    order = [document for _ in range(shape.questions) for document in range(shape.documents)]
    if shape.order == "random":
        rng.shuffle(order)
    ids = count()
    lengths = [shape.lengths[document % len(shape.lengths)] for document in range(shape.documents)]
    blocks = [tuple(islice(ids, length // BLOCK_TOKENS)) for length in lengths]
    half = shape.question_tokens // 2
    # Arrival times have no end.
    for document, at_s in zip(order, poisson_times(rng, shape.qps), strict=False):
        length = lengths[document] + max(1, shape.question_tokens + rng.randint(-half, half))
        own = -(-length // BLOCK_TOKENS) - len(blocks[document])
        yield TraceRow(
            timestamp=round(at_s * 1000),
            input_length=length,
            output_length=shape.output_tokens,
            hash_ids=blocks[document] + tuple(islice(ids, own)),
            session_id=f"document-{document}",
        )
