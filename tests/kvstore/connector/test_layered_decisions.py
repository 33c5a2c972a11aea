"""When a step loads by layers, and what the scheduler does until the report: failed blocks are computed by all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kvstore.connector.engine_params import KvOutcome, outcome_in
from kvstore.connector.scheduler_side import SchedulerSide
from kvstore.connector.step_messages import LoadEnd, StepReport
from tests.kvstore.connector.engine_blocks import PAYLOAD, TOKENS, Request, chain, progress, request, settings

BYTE_S, TOKEN_S = 1e-6, 1e-4
"""A block loads in 1 ms, and is computed in 1.6 ms."""


def side(*, workers: int = 1, step_tokens: int = 1000, layer_wise: bool = True) -> SchedulerSide:
    made = SchedulerSide(settings(layer_wise=layer_wise), TOKENS, workers=workers, step_tokens=step_tokens)
    made.payload_bytes = PAYLOAD
    made.estimate.byte_s, made.estimate.token_s = BYTE_S, TOKEN_S
    return made


def begun(scheduler: SchedulerSide, name: str = "a", load_blocks: int = 3, blocks: int = 8) -> Request:
    """Return a request whose load is decided. Its blocks in the engine are 10, 11, etc."""
    asked = request(name, blocks=blocks, load_blocks=load_blocks)
    scheduler.add(asked, "")
    tokens = scheduler.matched(asked, 0, 0.0)
    scheduler.allocated(asked, range(10, 10 + blocks + 1), tokens or 0)
    asked.num_computed_tokens = asked.num_tokens
    return asked


def stepped(scheduler: SchedulerSide, *requests: Request) -> Sequence[bytes]:
    """Run a step that computes the requests' prompts; return the hashes of blocks to save."""
    steps = [progress(item.request_id, item.num_tokens, range(10, 19)) for item in requests]
    return [chain_hash for job in scheduler.step(steps, 0, 0.0).saves for chain_hash in job.chain_hashes]


def report(scheduler: SchedulerSide, loaded: int, reason: str = "", unsaved: Sequence[bytes] = ()) -> None:
    outcome = KvOutcome(loaded_blocks=loaded, loaded_bytes=loaded * PAYLOAD, reason=reason, holder="127.0.0.1:1")
    scheduler.report(StepReport(ends=(LoadEnd(request_id="a", outcome=outcome),), unsaved=unsaved), 0.0)


@pytest.mark.parametrize(
    ("load_blocks", "changes", "expected"),
    [
        (3, {}, True),
        (6, {}, False),
        (3, {"step_tokens": TOKENS}, False),
        (3, {"layer_wise": False}, False),
    ],
    ids=["shorter load", "shorter computation", "small steps", "not set"],
)
def test_a_load_joins_the_step_if_the_rest_takes_longer(
    load_blocks: int, changes: dict[str, int], *, expected: bool
) -> None:
    scheduler = side(**changes)  # type: ignore[arg-type]
    begun(scheduler, load_blocks=load_blocks)
    assert scheduler.is_layered("a") == expected
    assert [job.layered for job in scheduler.step([], 0, 0.0).loads] == [expected]


@pytest.mark.parametrize("unknown", ["byte_s", "token_s"])
def test_without_measured_rates_no_step_waits_for_a_load(unknown: str) -> None:
    scheduler = side()
    setattr(scheduler.estimate, unknown, 0.0)
    begun(scheduler)
    assert not scheduler.is_layered("a")


def test_loads_under_way_count() -> None:
    scheduler = side()
    begun(scheduler, "first", load_blocks=6)
    begun(scheduler)
    assert not scheduler.is_layered("a")


def test_a_request_that_ends_with_its_step_reports_its_load() -> None:
    scheduler = side()
    asked = begun(scheduler)
    stepped(scheduler, asked)
    outcome = outcome_in(scheduler.finished("a"))
    assert outcome is not None
    assert (outcome.loaded_blocks, outcome.loaded_bytes, outcome.holder) == (3, 3 * PAYLOAD, "127.0.0.1:1")


def test_after_a_failed_load_all_requests_with_its_blocks_compute_and_no_other_finds_them() -> None:
    evicted: set[int] = set()
    scheduler = side()
    scheduler.evict = evicted.update
    asked, sharing = begun(scheduler), request("b", blocks=8)
    scheduler.add(sharing, "")
    sharing.num_computed_tokens = sharing.num_tokens
    assert stepped(scheduler, asked, sharing) == chain("p", 8)[3:]
    report(scheduler, 1, "failed", unsaved=chain("p", 8)[3:])
    assert stepped(scheduler, asked) == chain("p", 8)[1:]
    assert (asked.num_computed_tokens, sharing.num_computed_tokens) == (TOKENS, TOKENS)
    assert evicted == set(range(11, 19))
    outcome = outcome_in(scheduler.finished("a"))
    assert outcome is not None
    assert (outcome.loaded_blocks, outcome.reason) == (1, "failed")
    begun(scheduler, "next")
    assert not scheduler.is_layered("next"), "the rate is unknown until a load beside the steps has measured it"


def test_blocks_of_a_request_that_ends_during_the_step_are_not_found_either() -> None:
    evicted: set[int] = set()
    scheduler = side()
    scheduler.evict = evicted.update
    stepped(scheduler, begun(scheduler))
    scheduler.finished("a")
    report(scheduler, 0, "failed")
    assert evicted == set(range(10, 19))


def test_one_worker_saves_in_the_step_and_several_save_after_its_report() -> None:
    one = side()
    assert stepped(one, begun(one)) == chain("p", 8)[3:]
    two = side(workers=2)
    asked = begun(two)
    assert stepped(two, asked) == []
    report(two, 3)
    assert stepped(two, asked) == chain("p", 8)[3:]


def test_a_request_has_the_blocks_that_all_workers_loaded() -> None:
    """The reports of two workers can come with two steps."""
    for first, second in ((3, 1), (1, 3)):
        scheduler = side(workers=2, layer_wise=False)
        asked = begun(scheduler)
        scheduler.step([], 0, 0.0)
        report(scheduler, first, "" if first == 3 else "missing")
        report(scheduler, second, "" if second == 3 else "missing")
        assert stepped(scheduler, asked) == chain("p", 8)[1:]
        outcome = outcome_in(scheduler.finished("a"))
        assert outcome is not None
        assert (outcome.loaded_blocks, outcome.reason) == (1, "missing")
