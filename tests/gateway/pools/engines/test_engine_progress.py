"""An engine's progress on its requests, and the demand of the pool."""

from __future__ import annotations

import pytest

from gateway.pools.engines.engine_progress import FORGOTTEN_S, MAX_FOLLOWED, EngineProgress
from gateway.pools.pool.pool_progress import PoolProgress
from planning.facts.engine_speed import WINDOW_S
from routing.values.decision import Candidate, Decision
from routing.values.engine_pair import EnginePair


def test_an_idle_engine_has_no_slowness_or_tpot() -> None:
    counts = EngineProgress().counts(10.0, 3)
    assert (counts.dispatched, counts.prefilling, counts.slowness, counts.tpot_s, counts.event_gaps_total) == (
        0,
        0,
        None,
        None,
        3,
    )


def test_slowness_compares_first_tokens_with_the_expected_queue_time() -> None:
    progress = EngineProgress()
    progress.dispatched("a", 1.0, 0.0)
    progress.dispatched("b", 2.0, 0.0)
    counts = progress.counts(0.5, 0)
    assert (counts.dispatched, counts.prefilling, counts.longest_prefill_s, counts.slowness) == (2, 2, 2.0, None)
    progress.first_token("a", 2.0)
    progress.first_token("b", 6.0)
    counts = progress.counts(6.0, 0)
    assert counts.slowness == pytest.approx(2.0)
    assert (counts.slowness_samples, counts.first_tokens_total, counts.prefilling) == (2, 2, 0)


def test_prefills_that_were_quicker_than_estimated_are_no_work_ahead() -> None:
    progress = EngineProgress()
    for number in range(60):
        progress.dispatched(f"quick {number}", 5.0, 1.0 + number)
        progress.first_token(f"quick {number}", 1.1 + number)
    # Otherwise, minutes of estimated work would hide that the engine is slow now.
    for number in range(3):
        progress.dispatched(f"late {number}", 1.0, 70.0)
    assert progress.counts(90.0, 0).slowness == pytest.approx(10.0)


def test_an_unfinished_late_prefill_counts_as_slow_before_its_first_token() -> None:
    progress = EngineProgress()
    progress.dispatched("a", 1.0, 0.0)
    assert progress.counts(0.9, 0).slowness is None
    assert progress.counts(8.0, 0).slowness == pytest.approx(8.0)


def test_several_late_requests_outweigh_earlier_quick_ones() -> None:
    progress = EngineProgress()
    for number in range(20):
        progress.dispatched(f"quick {number}", 0.1, 1.0 + number)
        progress.first_token(f"quick {number}", 1.1 + number)
    for number in range(3):
        progress.dispatched(f"late {number}", 0.1, 30.0)
    counts = progress.counts(32.0, 0)
    assert (counts.slowness, counts.slowness_samples) == (pytest.approx(10.0), 3)
    progress.dispatched("between", 0.1, 31.0)
    progress.first_token("between", 31.1)
    assert progress.counts(32.0, 0).slowness_samples == 4


def test_streams_are_watched_for_stalls_before_their_first_token_too() -> None:
    progress = EngineProgress()
    progress.dispatched("a", 2.0, 0.0)
    progress.dispatched("b", 1.0, 0.0)
    progress.streams("a")
    assert (progress.watched().requests, progress.watched().streams, progress.counts(0.5, 0).streaming) == (2, 1, 0)
    assert (progress.watched().signs, progress.watched().longest_prefill_s) == (0, 2.0)
    progress.first_token("a", 4.0)
    # An engine that takes twice as long as expected is given twice the time.
    assert (progress.watched().signs, progress.watched().longest_prefill_s) == (1, 2.0)
    assert progress.counts(4.0, 0).streaming == 1


def test_a_non_streaming_request_is_never_late_by_first_token() -> None:
    progress = EngineProgress()
    progress.dispatched("a", 0.1, 0.0)
    progress.whole("a")
    counts = progress.counts(50.0, 0)
    assert (counts.slowness, counts.dispatched, counts.prefilling, counts.longest_prefill_s) == (None, 1, 0, 0.1)


def test_tpot_comes_from_completed_requests() -> None:
    progress = EngineProgress()
    progress.dispatched("a", 1.0, 0.0)
    progress.first_token("a", 1.0)
    progress.streams("a")
    assert progress.counts(1.0, 0).streaming == 1
    progress.completed("a", 11, 2.0)
    progress.dispatched("b", 1.0, 2.0)
    progress.first_token("b", 3.0)
    progress.completed("b", 1, 3.0)
    counts = progress.counts(3.0, 0)
    assert counts.tpot_s == pytest.approx(0.1)
    assert (counts.tpot_samples, counts.dispatched, counts.chunks_total) == (1, 0, 2)
    assert progress.counts(3.0 + WINDOW_S + 1, 0).tpot_s is None


def test_failures_are_counted_until_a_success() -> None:
    progress = EngineProgress()
    for name in "abc":
        progress.dispatched(name, 1.0, 0.0)
    progress.dropped("a", failed=True)
    progress.dropped("b", failed=True)
    assert progress.counts(1.0, 0).failures_in_row == 2
    progress.dropped("c")
    assert progress.counts(1.0, 0).failures_in_row == 2
    progress.dispatched("d", 1.0, 0.0)
    progress.first_token("d", 1.0)
    assert progress.counts(1.0, 0).failures_in_row == 0


def test_requests_that_never_end_are_forgotten_and_bounded() -> None:
    progress = EngineProgress()
    for number in range(MAX_FOLLOWED + 5):
        progress.dispatched(str(number), 0.0, 0.0)
    assert progress.counts(1.0, 0).dispatched == MAX_FOLLOWED
    assert progress.counts(FORGOTTEN_S + 1, 0).dispatched == 0


def decision(name: str, engine_id: str, hit: int, *others: int) -> Decision:
    candidates = tuple(Candidate(f"o{index}", tokens, 0.0, 0.0, 0.0) for index, tokens in enumerate(others))
    return Decision(
        name, "p", engine_id, 1, "least_cost", "fifo", 1, "x", 1000, hit, 0.0, 0.5, 0.0, candidates=candidates
    )


def test_the_pool_sums_work_and_recomputed_tokens() -> None:
    progress = PoolProgress()
    progress.dispatched(decision("r1", "a", 200, 200, 900), 1.0)
    progress.dispatched(decision("r2", "b", 500, 500, 100), 1.0)
    assert (progress.work_s, progress.prompt_tokens, progress.recomputed_tokens) == (1.0, 2000, 700)
    assert progress.engine("a").counts(1.0, 0).dispatched == 1
    progress.forget("a")
    assert progress.engine("a").counts(1.0, 0).dispatched == 0
    progress.dropped(decision("r3", "", 0), failed=True)


def test_each_engine_of_a_pair_is_judged_by_its_own_leg() -> None:
    pool = PoolProgress()
    pair = EnginePair("1", "d", 1, "r", 0.02, 100)
    decision = Decision("x", "pool", "p", 1, "p", "o", 1, "reason", 100, 0, 0.0, 1.0, 0.0, pair=pair)
    pool.dispatched(decision, 0.0)
    pool.moved(decision, 1.5, prefilled=True)
    first, second = pool.engine("p").counts(1.5, 0), pool.engine("d").counts(1.5, 0)
    assert (first.dispatched, first.first_tokens_total, first.slowness) == (0, 1, pytest.approx(1.5))
    assert (second.dispatched, second.prefilling, second.slowness) == (1, 1, None)
    pool.first_token(decision, 2.0)
    pool.completed(decision, 11, 3.0)
    assert pool.engine("d").counts(3.0, 0).tpot_s == pytest.approx(0.1)
    assert pool.engine("p").counts(3.0, 0).tpot_samples == 0
    pool.dispatched(decision, 4.0)
    pool.dropped(decision, failed=True)
    assert pool.engine("p").counts(4.0, 0).failures_in_row == 1
    pool.dispatched(decision, 5.0)
    pool.moved(decision, 5.1, prefilled=False)
    pool.dropped(decision, failed=True)
    assert pool.engine("d").counts(5.1, 0).failures_in_row == 1
    assert (pool.engine("p").counts(5.1, 0).dispatched, pool.engine("d").counts(5.1, 0).dispatched) == (0, 0)


def test_times_during_loop_lapses_do_not_judge_the_engine() -> None:
    progress = EngineProgress(lambda since_s, _now: since_s >= 100.0)
    for name, dispatched_s in (("missed", 0.0), ("waits", 1.0), ("heard", 100.0)):
        progress.dispatched(name, 1.0, dispatched_s)
    for name, first_s in (("missed", 50.0), ("heard", 101.0)):
        progress.first_token(name, first_s)
        progress.completed(name, 11, first_s + 1.0)
    seen = progress.counts(103.0, 0)
    assert (seen.slowness, seen.slowness_samples) == (pytest.approx(1.0), 1)
    assert (seen.tpot_s, seen.tpot_samples) == (pytest.approx(0.1), 1)
    assert (seen.prefilling, seen.first_tokens_total) == (1, 2)
