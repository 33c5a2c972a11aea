"""Reports of several workers of one engine are merged.

Progress of each request in a step of vLLM 0.32.
"""

from __future__ import annotations

from types import SimpleNamespace

import msgspec

from kvstore.connector.engine_params import KvOutcome
from kvstore.connector.scheduler_side import StepProgress, progress_of
from kvstore.connector.step_messages import LoadEnd, StepReport


def test_a_merged_load_has_the_block_count_of_the_worker_with_the_fewest() -> None:
    whole, part = (
        LoadEnd(request_id="a", outcome=KvOutcome(loaded_blocks=4)),
        LoadEnd(request_id="a", outcome=KvOutcome(loaded_blocks=1, reason="missing")),
    )
    for one, other in ((whole, part), (part, whole)):
        assert StepReport(ends=(one,)).joined(StepReport(ends=(other,))).ends == (
            msgspec.structs.replace(part, workers=2),
        )


def test_loads_and_blocks_of_each_worker_are_reported_once() -> None:
    a, b = LoadEnd(request_id="a", outcome=KvOutcome()), LoadEnd(request_id="b", outcome=KvOutcome())
    one = StepReport(ends=(a,), unsaved=(b"1", b"2"), token_s=0.1)
    joined = one.joined(StepReport(ends=(b,), unsaved=(b"2", b"3"), token_s=0.2))
    assert joined == StepReport(ends=(a, b), unsaved=(b"1", b"2", b"3"), token_s=0.2)


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
