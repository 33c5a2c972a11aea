"""Progress of each request in a step of vLLM 0.32."""

from __future__ import annotations

from types import SimpleNamespace

from kvstore.connector.scheduler_side import StepProgress
from kvstore.connector.step_progress import progress_of


def test_new_continued_and_resumed_requests_are_reported() -> None:
    step = SimpleNamespace(
        num_scheduled_tokens={"new": 40, "goes on": 1, "grows": 1, "back": 64},
        scheduled_new_reqs=[SimpleNamespace(req_id="new", num_computed_tokens=32, block_ids=([1, 2, 3],))],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=["goes on", "grows", "back"],
            resumed_req_ids={"back"},
            new_block_ids=[None, ([9],), ([4, 5],)],
            num_computed_tokens=[70, 96, 0],
        ),
    )
    assert list(progress_of(step)) == [
        StepProgress("new", 72, [1, 2, 3], True),
        StepProgress("goes on", 71, (), False),
        StepProgress("grows", 97, [9], False),
        StepProgress("back", 64, [4, 5], True),
    ]
