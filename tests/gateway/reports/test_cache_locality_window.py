"""The pool's data for the Cache locality page: sampled prompt prefixes, and sums of the parts of TTFT."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.pool.recent_decisions import DecisionRecord
from gateway.reports.request_outbox import split_of
from gateway.traffic.prefix_icicle import MAX_BLOCKS
from gateway.traffic.prefix_window import MAX_PROMPTS, SPAN_S, PrefixWindow
from gateway.traffic.ttft_split import BUCKET_S, TtftSplit
from routing.values.decision import Decision
from routing.values.engine_pair import EnginePair
from routing.values.load_options import Fetch


def test_prompts_are_truncated_and_expire() -> None:
    window = PrefixWindow()
    window.note(range(500), "e-1", 10.0)
    window.note((), "e-1", 11.0)
    (kept,) = window.recent(12.0)
    assert (len(kept.keys), kept.engine_id, kept.weight) == (MAX_BLOCKS, "e-1", 1)
    assert window.recent(10.0 + SPAN_S + 1) == []


def test_of_much_traffic_every_nth_prompt_is_kept_and_represents_n() -> None:
    window = PrefixWindow()
    for second in range(120):
        for number in range(100):
            window.note((number,), "e-1", second + number / 100)
        window.recent(second + 1.0)
    kept = window.recent(120.0)
    assert len(kept) == MAX_PROMPTS
    assert kept[-1].weight == 6
    assert kept[-1].at_s - kept[0].at_s > 50
    assert sum(item.weight for item in kept) == pytest.approx(6000, rel=0.05)


def test_the_parts_of_a_span_add_up_to_its_mean() -> None:
    split = TtftSplit()
    for number in range(100):
        late = number >= 90
        split.note(("e-1", 2.0 if late else 0.1, 0.0, 0.5, 1000.0 - number / 10))
    one, five, fifteen = split.spans("e-1", 1000.0)
    assert (one.requests, five.requests, fifteen.requests) == (100, 100, 100)
    assert one.mean.queue_s == pytest.approx(0.29)
    assert one.mean.prefill_s == pytest.approx(0.5)
    assert one.p90.queue_s == pytest.approx(0.1)
    split.note(("e-1", 2.0, 0.0, 0.5, 1000.0))
    assert split.spans("e-1", 1000.0)[0].p90.queue_s == pytest.approx(2.0)


def test_of_many_requests_one_represents_those_like_it() -> None:
    split = TtftSplit()
    split.note(("e-1", 0.1, 0.2, 0.3, 1000.0), 4)
    split.note(("e-1", 0.6, 0.2, 0.3, 1000.0))
    one = split.spans("e-1", 1000.0)[0]
    assert (one.requests, one.mean.queue_s) == (5, pytest.approx(0.2))


def test_old_half_minutes_leave_the_short_span_first() -> None:
    split = TtftSplit()
    split.note(("e-1", 0.1, 0.2, 0.3, 1000.0))
    assert [item.span_s for item in split.spans("e-1", 1000.0 + 60 + BUCKET_S)] == [300.0, 900.0]
    assert split.spans("e-1", 3000.0) == ()
    split.note(("e-1", 0.1, 0.2, 0.3, 3000.0))
    split.keep_only(["e-2"])
    assert split.spans("e-1", 3000.0) == ()


def record(ttft_s: float | None, **fields: Any) -> DecisionRecord:
    decision = Decision(
        "d",
        "pool",
        "e-1",
        1,
        "least_cost",
        "slack",
        1,
        "least_cost",
        100,
        0,
        0.0,
        0.0,
        **{"decided_s": 50.0, "queued_s": 0.5, **fields},
    )
    made = DecisionRecord(decision, cast("Any", None), "t", "tokens", 50.0, 1.0, 0.0, ("e-1",))
    made.first_token_s = None if ttft_s is None else 50.0 + ttft_s
    return made


def test_a_requests_time_is_split_into_queue_transfer_and_prefill() -> None:
    assert split_of(record(2.0)) == ("e-1", 0.5, 0.0, 1.5, 52.0)
    assert split_of(record(0.25)) == ("e-1", 0.25, 0.0, 0.0, 50.25)
    assert split_of(record(2.0, queued_s=0.0, decided_s=51.5)) == ("e-1", 1.5, 0.0, 0.5, 52.0)
    assert split_of(record(None)) is None
    pair = record(2.0, pair=EnginePair("1", "e-2", 1, "least_tpot", 0.0, 0))
    pair.attempts, pair.handed_over_s = ("e-1", "e-2"), 51.6
    assert split_of(pair) == ("e-1", 0.5, pytest.approx(0.4), pytest.approx(1.1), 52.0)


def test_an_estimated_fetch_time_is_not_a_measured_part() -> None:
    assert split_of(record(2.0, fetch=Fetch("e-2", 4, 0.25))) == ("e-1", 0.5, 0.0, 1.5, 52.0)


def test_time_spent_on_a_failed_engine_is_in_no_part() -> None:
    again = record(2.0)
    again.attempts = ("e-2", "e-1")
    assert split_of(again) is None
