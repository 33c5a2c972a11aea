import math
from random import Random
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.placements.lbgr import DecayingLoad, Lbgr, ResidualModel
from routing.values.feedback_events import Answered, Bound, Released
from tests.routing.pools import choice_of, chosen_by, pool, request

LONG = range(20)
ASKED = request(1, LONG)


def costs(router: object, placement: Lbgr, now: float) -> dict[str, float]:
    choice = choice_of(router, placement, ASKED, now=now)  # type: ignore[arg-type]
    return {candidate.engine_id: candidate.cost for candidate in choice.candidates}


def test_initial_estimates_are_uncached_tokens_in_thousands() -> None:
    router = pool(size=2)
    router.blocks_stored("e-01", ASKED.keys[:10])
    assert costs(router, Lbgr(cached_s=0.1), 0.0) == pytest.approx({"e-01": 5.12 + 0.512, "e-02": 10.24})


def test_sent_work_is_a_load_that_decays() -> None:
    router, placement = pool(size=2), Lbgr()
    placement.learn(Bound(request(2, range(50, 60)), "e-01", 0, 0.0))
    assert costs(router, placement, 0.0)["e-01"] == pytest.approx(10.24 + 5.12)
    # 0.44 s are 22 intervals of 20 ms: (31/32)^22 = 0.497.
    assert costs(router, placement, 0.44)["e-01"] == pytest.approx(10.24 + 5.12 * (31 / 32) ** 22)


def test_pending_work_can_be_exempt_from_decay() -> None:
    router, placement = pool(size=2), Lbgr(keep_pending=True)
    sent = request(2, range(50, 60))
    placement.learn(Bound(sent, "e-01", 0, 0.0))
    assert costs(router, placement, 60.0)["e-01"] == pytest.approx(10.24 + 5.12)
    placement.learn(Released(sent, "e-01", 60.0, False))
    assert costs(router, placement, 60.0)["e-01"] == pytest.approx(10.24)


def test_a_slow_engine_is_learned_and_avoided() -> None:
    router, placement = pool(size=2), Lbgr()
    for number in range(2, 30):
        engine_id = f"e-{number % 2 + 1:02}"
        sent = request(number, [number, number + 100], at=float(number))
        placement.learn(Bound(sent, engine_id, 0, float(number)))
        took = 4.0 if engine_id == "e-01" else 0.1
        placement.learn(Answered(sent, engine_id, number + took))
    late = 100.0
    assert chosen_by(router, placement, ASKED, now=late) == "e-02"
    assert costs(router, placement, late)["e-01"] > costs(router, placement, late)["e-02"] + 2


@pytest.mark.parametrize("event", [Answered(ASKED, "e-01", 1.0), Released(ASKED, "e-09", 1.0, True)])
def test_feedback_about_unknown_requests_teaches_nothing(event: Answered | Released) -> None:
    router, placement = pool(size=2), Lbgr()
    placement.learn(Bound(request(2), "e-01", 0, 0.0))
    before = costs(router, placement, 1.0)
    placement.learn(event)
    assert costs(router, placement, 1.0) == before


def test_a_failed_request_is_released_without_learning() -> None:
    router, placement = pool(size=2), Lbgr()
    sent = request(2)
    placement.learn(Bound(sent, "e-01", 0, 0.0))
    placement.learn(Released(sent, "e-01", 50.0, False))
    assert costs(router, placement, 50.0) == pytest.approx({"e-01": 10.24, "e-02": 10.24})


def test_the_end_to_end_latency_is_learned_at_completion_and_load_stays_until_then() -> None:
    router, placement = pool(size=2), Lbgr(latency="end_to_end", decay=1.0)
    sent = request(2, range(50, 60))
    placement.learn(Bound(sent, "e-01", 0, 0.0))
    placement.learn(Answered(sent, "e-01", 1.0))
    assert costs(router, placement, 1.0)["e-01"] == pytest.approx(10.24 + 5.12)
    placement.learn(Released(sent, "e-01", 30.0, True))
    assert costs(router, placement, 30.0)["e-01"] > 10.24 + 20.0, "30 s of decoding are in the latency"
    other = Lbgr(decay=1.0)
    other.learn(Bound(sent, "e-01", 0, 0.0))
    other.learn(Answered(sent, "e-01", 1.0))
    other.learn(Released(sent, "e-01", 30.0, True))
    assert costs(router, other, 30.0)["e-01"] < 10.24


@pytest.mark.parametrize("latency", ["ttft", "end_to_end"])
def test_learned_weights_continue_in_another_process(latency: Literal["ttft", "end_to_end"]) -> None:
    router, placement = pool(size=2), Lbgr(latency=latency)
    for number in range(2, 20):
        sent = request(number, [number, number + 100], at=float(number))
        placement.learn(Bound(sent, "e-01", 0, float(number)))
        placement.learn(Released(sent, "e-01", number + 4.0, True))
    again = Lbgr(latency=latency)
    again.resume(placement.kept())
    assert costs(router, again, 1000.0) == pytest.approx(costs(router, placement, 1000.0))
    assert costs(router, again, 1000.0) != costs(router, Lbgr(latency=latency), 1000.0)


@pytest.mark.parametrize(
    "kept",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"latency": "ttft", "engines": {"e-01": ([1.0], [[1.0]])}}),
        msgspec.msgpack.encode({"latency": "ttft", "engines": {"e-01": ([math.nan] * 4, [[1.0] * 4] * 4)}}),
        msgspec.msgpack.encode({"latency": "end_to_end", "engines": {"e-01": ([9.0] * 4, [[1.0] * 4] * 4)}}),
    ],
)
def test_weights_that_do_not_fit_are_ignored(kept: bytes) -> None:
    placement = Lbgr()
    placement.resume(kept)
    assert costs(pool(size=2), placement, 0.0) == costs(pool(size=2), Lbgr(), 0.0)


def test_the_weights_of_a_linear_model_are_recovered() -> None:
    model, rng = ResidualModel(3, forgetting=0.99, prior=100.0), Random(1)
    for _ in range(300):
        features = (rng.random(), rng.random() * 4, 1.0)
        model.update(features, 2.0 * features[0] - 0.5 * features[1] + 3.0)
    assert model.theta == pytest.approx([2.0, -0.5, 3.0], abs=1e-3)
    model.check()


def test_one_feature_with_a_prior_is_a_weighted_mean() -> None:
    model = ResidualModel(1, forgetting=1.0, prior=1.0)
    for observed in (3.0, 6.0):
        model.update((1.0,), observed)
    # Ridge regression: (3 + 6) ÷ (2 + 1 ÷ prior).
    assert model.predict((1.0,)) == pytest.approx(3.0)


def test_faster_forgetting_follows_a_change_faster() -> None:
    slow, fast = (ResidualModel(1, forgetting=number, prior=10.0) for number in (0.992, 0.95))
    for observed in [0.0] * 200 + [1.0] * 20:
        slow.update((1.0,), observed)
        fast.update((1.0,), observed)
    # 1 − λ²⁰ of the way: 15 % and 64 %.
    assert slow.predict((1.0,)) < 0.25
    assert fast.predict((1.0,)) > 0.6


def test_a_non_finite_value_teaches_nothing() -> None:
    model = ResidualModel(2, forgetting=0.95, prior=10.0)
    for observed in (math.nan, math.inf):
        model.update((1.0, 2.0), observed)
    assert model.theta == [0.0, 0.0]


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 100), st.floats(-50, 500)), max_size=60), st.integers(0, 3))
def test_the_covariance_stays_symmetric_and_bounded(seen: list[tuple[float, float, float]], silence: int) -> None:
    model = ResidualModel(4, forgetting=0.95, prior=10.0)
    for hit, load, observed in seen:
        model.update((hit, 20 - hit, load, 1.0), observed)
    for _ in range(silence * 500):
        model.update((0.0, 0.0, 0.0, 1.0), 1.0)
    model.check()


def test_a_cost_halves_with_its_half_life() -> None:
    load = DecayingLoad(0.5, 2.0)
    load.add(8.0, 10.0)
    assert [load.at(10.0), load.at(12.0), load.at(16.0)] == pytest.approx([8.0, 4.0, 1.0])


def test_only_the_undecayed_part_of_a_cost_is_released() -> None:
    load = DecayingLoad(0.5, 1.0)
    load.add(8.0, 0.0)
    load.add(4.0, 1.0)
    load.release(8.0, 0.0, 2.0)
    assert load.at(2.0) == pytest.approx(2.0)
    load.release(4.0, 1.0, 2.0)
    assert load.at(2.0) == pytest.approx(0.0)


def test_reading_the_load_changes_nothing() -> None:
    asked, silent = DecayingLoad(31 / 32, 0.02), DecayingLoad(31 / 32, 0.02)
    for load in (asked, silent):
        load.add(1.0, 0.0)
    for step in range(100):
        asked.at(step / 100)
    assert asked.at(1.0) == silent.at(1.0)


def test_a_pending_cost_is_kept_until_it_is_released() -> None:
    load = DecayingLoad(0.5, 1.0, keeps_pending=True)
    load.add(8.0, 0.0)
    assert load.at(100.0) == 8.0
    load.release(8.0, 0.0, 100.0)
    assert load.at(100.0) == pytest.approx(0.0)
