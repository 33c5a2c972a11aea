"""Progress of each request in a step of vLLM's scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvstore.connector.scheduler_side import StepProgress


def progress_of(scheduler_output: Any) -> Iterator[StepProgress]:
    """Yield each request of a step from vLLM's `SchedulerOutput`. The model has one group of blocks.

    A request that resumes after a preemption is reported with all its blocks, a running one with its new ones.
    """
    scheduled = scheduler_output.num_scheduled_tokens
    for new in scheduler_output.scheduled_new_reqs:
        yield StepProgress(new.req_id, new.num_computed_tokens + scheduled[new.req_id], new.block_ids[0], True)
    known = scheduler_output.scheduled_cached_reqs
    for request_id, blocks, computed in zip(known.req_ids, known.new_block_ids, known.num_computed_tokens, strict=True):
        resumed = request_id in known.resumed_req_ids
        yield StepProgress(request_id, computed + scheduled[request_id], blocks[0] if blocks else (), resumed)
