"""The replay of a day: what it finds, its repeatability, its budget, and its choice of the simulated engine."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planning.savings.day_savings import WindowRuns, day_savings
from planning.savings.day_windows import day_windows
from routing.policy.policy_document import RoutingPolicy, Stage
from simulator.engine_models.engine_profile import EngineProfile
from simulator.savings import day_replay
from simulator.savings.day_replay import ARM_SEEDS, ROUTERS, DayQuestion, EngineGuess, WindowTraffic, fitted, replay_day
from simulator.workloads.registry import generate_workload
from simulator.workloads.trace import TraceRow

ENGINES = 3


def traffic(count: int = 480, qps: float = 2.2, ttft_s: float | None = None) -> list[WindowTraffic]:
    """Return the windows of a day of sessions that share prefixes."""
    rows = [
        replace(row, timestamp=number / qps * 1000, tenant="acme" if number % 3 else "beta")
        for number, row in enumerate(generate_workload("conversation_like", seed=1, rows=count))
    ]
    return [
        WindowTraffic(window=item, rows=rows[item.first : item.last], version=7, engines=ENGINES, ttft_s=ttft_s)
        for item in day_windows([row.timestamp / 1000 for row in rows])
    ]


def question(**fields: object) -> DayQuestion:
    known = {
        "live": {7: RoutingPolicy()}, "earlier": {}, "engines": (EngineGuess("reference", EngineProfile()),),
        "routers": ("round_robin",), "budget_s": 1e6,
    }  # fmt: skip
    return DayQuestion(**{**known, **fields})  # type: ignore[arg-type]  # the fields of the struct


@pytest.fixture(scope="module")
def replayed() -> tuple[WindowRuns, ...]:
    held = {"holdback": Stage(name="least_loaded"), "holdback_share": 0.2}
    return replay_day(question(earlier={"v6": RoutingPolicy()}, **held), traffic()[:4]).runs


def test_keeping_prefixes_saves_engines_and_late_answers(replayed: tuple[WindowRuns, ...]) -> None:
    saving = {(item.alternative, item.tenant): item for item in day_savings(replayed)}
    pool = saving["round_robin", ""]
    assert pool.late.mid > 0
    assert pool.engine_h.mid > 0
    assert saving["round_robin", "acme"].late.mid + saving["round_robin", "beta"].late.mid == pytest.approx(
        pool.late.mid
    )


def test_an_equal_policy_saves_nothing(replayed: tuple[WindowRuns, ...]) -> None:
    same = next(item for item in day_savings(replayed) if item.alternative == "v6")
    assert (same.late.low, same.late.mid, same.late.high) == (0, 0, 0)
    assert (same.engine_h.low, same.engine_h.mid, same.engine_h.high) == (0, 0, 0)


def test_the_live_policy_needs_no_more_engines_than_it_had(replayed: tuple[WindowRuns, ...]) -> None:
    assert all(1 <= run.live.engines <= ENGINES for run in replayed)
    assert not any(run.live.capped for run in replayed)


def test_the_holdback_is_replayed_beside_the_live_policy(replayed: tuple[WindowRuns, ...]) -> None:
    for run in replayed:
        assert len(run.arms) == ARM_SEEDS
        assert {arm.control + arm.live for arm in run.arms} == {run.window.counted}
    share = sum(arm.control for run in replayed for arm in run.arms) / sum(
        ARM_SEEDS * run.window.counted for run in replayed
    )
    assert 0.1 < share < 0.3


def test_equal_questions_have_equal_answers() -> None:
    some = traffic()[:2]
    assert replay_day(question(), some).runs == replay_day(question(), some).runs


def test_a_spent_budget_ends_the_replay_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(100_000))
    monkeypatch.setattr("time.process_time", lambda: float(next(seconds)))
    done = replay_day(question(budget_s=6.5), traffic())
    assert done.cut_short
    assert 0 < len(done.runs) < len(traffic())


def test_a_small_budget_makes_windows_smaller_first() -> None:
    item = traffic()[1]
    smaller = fitted(item, 150)
    assert len(smaller.rows) == 150 == smaller.window.last - smaller.window.first
    assert smaller.rows == item.rows[-150:]
    assert 0 < smaller.window.counted < item.window.counted
    assert smaller.window.requests == item.window.requests
    assert fitted(item, 10_000) is item


def test_the_engine_closest_to_the_recorded_times_is_simulated() -> None:
    slow = replace(EngineProfile(), prefill_per_token_s=20 * EngineProfile().prefill_per_token_s)
    guesses = (EngineGuess("reference", slow), EngineGuess("chunked", EngineProfile()))
    known = replay_day(question(engines=guesses, routers=()), traffic(ttft_s=0.5)[:1])
    assert known.engine_model == "chunked"
    unknown = replay_day(question(engines=guesses, routers=()), traffic()[:1])
    assert unknown.engine_model == "reference"


def test_windows_of_unreadable_versions_are_left_out() -> None:
    assert replay_day(question(live={3: RoutingPolicy()}), traffic()).runs == ()


def test_other_routers_run_without_a_queue_of_ours() -> None:
    others = day_replay.alternatives(question(routers=ROUTERS), RoutingPolicy())
    assert set(others) == set(ROUTERS)
    assert {item.order.name for item in others.values()} == {"fifo"}
    assert {item.placement.name for item in others.values()} == set(ROUTERS)


def test_rows_keep_their_tenant() -> None:
    assert {row.tenant for item in traffic() for row in item.rows} == {"acme", "beta"}
    assert isinstance(traffic()[0].rows[0], TraceRow)
