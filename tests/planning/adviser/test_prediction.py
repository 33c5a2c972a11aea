import random

import pytest

from planning.adviser.halving import FINALISTS, rungs
from planning.adviser.prediction import (
    ENGINE_HOURS,
    ON_TIME,
    ON_TIME_TOKENS,
    REJECTED,
    TTFT_MEAN,
    Practical,
    WindowFigures,
    predicted_changes,
    utility,
    worse_groups,
)
from planning.adviser.verdict import costs_of, objections

PRACTICAL = Practical()


def run(on_time: float = 0.8, ttft: float = 1.0, rejected: float = 0.0, **groups: tuple[int, float]) -> WindowFigures:
    figures = {ON_TIME: on_time, ON_TIME_TOKENS: on_time, REJECTED: rejected, TTFT_MEAN: ttft, "tpot_p90_s": None}
    return WindowFigures(figures=figures, groups=groups)


def changes(live: list[WindowFigures], tried: list[WindowFigures], seeds: int = 1) -> dict:
    made = predicted_changes((live, tried), (live[:2], tried[:2]), seeds)
    return {item.objective.name: item for item in made}


def test_a_change_is_the_mean_of_paired_differences() -> None:
    live = [run(0.5, 1.0), run(0.9, 4.0), run(0.7, 2.0)]
    made = changes(live, [run(0.6, 0.5), run(1.0, 2.0), run(0.8, 1.0)])
    assert made[ON_TIME].change == pytest.approx(0.1)
    assert made[TTFT_MEAN].change == pytest.approx(-0.5)
    # Equal differences in all windows leave no doubt, however different the windows are.
    assert made[ON_TIME].high - made[ON_TIME].low == pytest.approx(0)
    assert "tpot_p90_s" not in made


def test_seeds_of_one_window_are_one_observation() -> None:
    tried = [run(0.8 + change) for change in (0.1, -0.1, 0.1, -0.1, 0.1, -0.1)]
    made = changes([run()] * 6, tried, seeds=2)[ON_TIME]
    assert (made.change, made.low, made.high) == pytest.approx((0, 0, 0))


def test_a_range_covers_nine_of_ten_means_of_further_windows() -> None:
    rng, within = random.Random(3), 0
    for _ in range(1000):
        tried = [run(0.8 + rng.gauss(0.05, 0.03)) for _ in range(7)]
        item = {
            change.objective.name: change
            for change in predicted_changes(([run()] * 4, tried[:4]), ([run()] * 3, tried[4:]), 1)
        }[ON_TIME]
        assert item.measured is not None
        within += item.low <= item.measured <= item.high
    assert 870 <= within <= 930


def test_utility_counts_gains_in_practical_sizes_and_a_loss_outweighs_them() -> None:
    assert utility([run()], [run(0.82)], PRACTICAL) == pytest.approx(2)
    assert utility([run()], [run(ttft=0.9)], PRACTICAL) == pytest.approx(1)
    assert utility([run()], [run(0.99, 0.1, rejected=0.04)], PRACTICAL) == pytest.approx(-2)


def test_groups_that_lose_are_listed_with_the_worst_first() -> None:
    live = [run(short=(10, 1.0), long=(10, 0.9), other=(10, 0.5))] * 2
    tried = [run(short=(10, 0.9), long=(10, 0.5), other=(10, 0.6))] * 2
    made = worse_groups(live, tried, PRACTICAL)
    assert [(item.group, item.requests) for item in made] == [("long", 20), ("short", 20)]
    assert made[0].proposed == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("tried", "objection"),
    [
        ([run(0.9), run(0.91), run(0.92)], None),
        ([run(ttft=0.5), run(ttft=0.6), run(ttft=0.55)], None),
        ([run(0.81), run(0.81), run(0.81)], "no objective improves"),
        ([run(0.99), run(0.6), run(0.99)], "include no change"),
        ([run(0.9, rejected=0.1)] * 3, "Rejected: worse"),
        ([run(0.7, ttft=0.1)] * 3, "of requests: worse"),
    ],
)
def test_only_a_practical_gain_beyond_doubt_is_proposed(tried: list[WindowFigures], objection: str | None) -> None:
    made = objections(list(changes([run()] * 3, tried).values()), PRACTICAL)
    assert made == () if objection is None else any(objection in sentence for sentence in made)


def on_engines(engines: int, on_time: float = 0.99, ttft: float = 1.0) -> WindowFigures:
    figures = run(on_time, ttft).figures
    return WindowFigures(figures={**figures, ENGINE_HOURS: 24.0 * engines})


@pytest.mark.parametrize(
    ("live", "tried", "objection"),
    [
        # Slower, but on time.
        (on_engines(8), [on_engines(6, 0.985, 1.5), on_engines(6, 0.98, 1.5), on_engines(6, 0.985, 1.5)], None),
        (on_engines(8), [on_engines(6, 0.99), on_engines(6, 0.95), on_engines(6, 0.98)], "range of an on-time share"),
        (on_engines(8), [on_engines(6, 0.9)] * 3, "of requests: worse"),
        (on_engines(40), [on_engines(39)] * 3, "no objective improves"),
        (on_engines(8), [on_engines(9, 0.999, 0.2)] * 3, "more engines, although"),
        (on_engines(8, 0.7), [on_engines(9, 0.95)] * 3, None),
    ],
)
def test_engines_are_saved_while_requests_stay_on_time_and_added_for_a_missed_objective(
    live: WindowFigures, tried: list[WindowFigures], objection: str | None
) -> None:
    made = objections(list(changes([live] * 3, tried).values()), PRACTICAL)
    assert made == () if objection is None else any(objection in sentence for sentence in made)
    if objection != "range of an on-time share":
        assert (utility([live] * 3, tried, PRACTICAL) > 0) == (objection in (None, "no objective improves"))


def test_costs_are_additional_engine_hours_and_what_gets_worse() -> None:
    more = changes([on_engines(40)] * 3, [on_engines(41)] * 3)
    fewer = changes([on_engines(8)] * 3, [on_engines(6, 0.985, 1.5)] * 3)
    assert costs_of(list(more.values()), PRACTICAL) == ("Engine hours per day: +2.5 %",)
    assert costs_of(list(fewer.values()), PRACTICAL) == ("TTFT, mean: +50.0 %",)


@pytest.mark.parametrize("runs", [20, 60, 500, 10_000])
def test_rungs_use_no_more_runs_than_given(runs: int) -> None:
    steps = rungs(runs, 4)
    used = 4 + sum(step.candidates * new for step, new in zip(steps, (1, 1, 2), strict=True))
    assert used <= runs
    assert [step.windows for step in steps] == [1, 2, 4]
    assert steps[-1].candidates >= FINALISTS
    assert rungs(10, 4) == ()
