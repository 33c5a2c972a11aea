"""Reports of several workers of one engine are merged."""

from __future__ import annotations

from kvstore.connector.engine_params import KvOutcome
from kvstore.connector.step_messages import LoadEnd, StepReport


def test_a_merged_load_has_the_block_count_of_the_worker_with_the_fewest() -> None:
    whole, part = (
        LoadEnd(request_id="a", outcome=KvOutcome(loaded_blocks=4)),
        LoadEnd(request_id="a", outcome=KvOutcome(loaded_blocks=1, reason="missing")),
    )
    for one, other in ((whole, part), (part, whole)):
        assert StepReport(ends=(one,)).joined(StepReport(ends=(other,))).ends == (part,)


def test_loads_and_blocks_of_each_worker_are_reported_once() -> None:
    a, b = LoadEnd(request_id="a", outcome=KvOutcome()), LoadEnd(request_id="b", outcome=KvOutcome())
    one = StepReport(ends=(a,), unsaved=(b"1", b"2"), token_s=0.1)
    joined = one.joined(StepReport(ends=(b,), unsaved=(b"2", b"3"), token_s=0.2))
    assert joined == StepReport(ends=(a, b), unsaved=(b"1", b"2", b"3"), token_s=0.2)
