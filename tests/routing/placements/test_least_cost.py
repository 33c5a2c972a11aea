from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.cost.cost_model import DecodeCost
from routing.placements.least_cost import FEW_OF, LeastCost
from routing.router import Router
from routing.values.decision import Candidate
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, FirstToken
from tests.routing.pools import engine_of, engines, pool, request

LONG = range(20)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.floats(0, 30)), min_size=1, max_size=10),
    st.floats(0.5, 20),
)
def test_the_minimum_over_all_engines_is_chosen(loads: list[tuple[int, float]], beta: float) -> None:
    router, asked = pool(size=len(loads)), request(1, LONG)
    for target, (held, ready_at) in enumerate(loads):
        router.blocks_stored(router.view.roster.engine_ids[target], asked.keys[:held])
        router.view.load.ready_at[target] = ready_at
    choice = LeastCost(beta=beta).choose(asked, router.view, 0.0, Random(1))
    costs = [
        ready_at + beta * router.view.compute_s(asked, target, held * 512)
        for target, (held, ready_at) in enumerate(loads)
    ]
    holds = [held for held, _ in loads if held]
    if holds and (len(loads) - len(holds)) * FEW_OF <= len(loads):
        shared_s = router.view.compute_s(asked, 0, 0) - router.view.compute_s(asked, 0, 512 * min(holds))
        for target, (held, ready_at) in enumerate(loads):
            costs[target] -= (beta - 1) * shared_s if not held and ready_at == 0.0 else 0.0
    assert abs(costs[choice.target] - min(costs)) < 1e-9
    assert choice.candidates[0].cost == costs[choice.target]


def test_compute_weighs_more_than_waiting_so_a_hit_is_worth_a_wait() -> None:
    router, asked = pool(size=2), request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    router.view.load.ready_at[0] = 3.0
    assert LeastCost().choose(asked, router.view, 0.0, Random(1)).target == 0
    assert LeastCost(beta=1.0).choose(asked, router.view, 0.0, Random(1)).target == 1


def test_an_idle_engine_in_slow_start_is_preferred_to_a_queue() -> None:
    router, asked = pool(size=2), request(1, LONG)
    facts = [*engines(1), msgspec.structs.replace(engines(2)[1], share=0.5, speed=0.5)]
    router.set_engines(facts, 0.0)
    whole_s, slow_s = (router.view.compute_s(asked, target, 0) for target in (0, 1))
    assert slow_s == pytest.approx(2 * whole_s)
    router.view.load.ready_at[0] = 2 * whole_s
    choice = LeastCost(beta=8.0).choose(asked, router.view, 0.0, Random(1))
    assert (choice.target, choice.candidates[0].cost) == (1, pytest.approx(9 * whole_s))
    # It takes its share of an idle fleet's load, not more.
    router.view.load.ready_at[0] = 0.0
    assert LeastCost(beta=8.0).choose(asked, router.view, 0.0, Random(1)).target == 0


def test_a_blind_index_gets_no_credit_for_hits() -> None:
    router, asked = pool(size=2), request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    router.view.roster.trusts[0] = 0.0
    router.view.load.ready_at[0] = 0.1
    assert LeastCost().choose(asked, router.view, 0.0, Random(1)).target == 1


def test_an_idle_engine_recomputes_a_lost_shared_prefix_before_others_queue_long() -> None:
    router, shared = pool(size=4), range(4)
    for engine_id in ("e-01", "e-02", "e-04"):
        router.blocks_stored(engine_id, request(0, shared).keys)
    shared_s = router.view.compute_s(request(0, shared), 0, 0)
    waits = []
    for number in range(12):
        # A beginning that all share and an end of its own, faster than three engines compute them.
        asked = request(number, (*shared, *range(100 * number + 100, 100 * number + 108)), at=number * 0.1)
        dispatched = router.place(asked, asked.arrived_s, hold=False)
        if engine_of(dispatched) == "e-03":
            break
        waits.append(dispatched.decision.wait_s)  # type: ignore[union-attr]
    assert len(waits) < 12
    assert max(waits) < 2 * shared_s


def test_a_prefix_on_few_engines_stays_there() -> None:
    router, asked = pool(size=4), request(1, LONG)
    for engine_id in ("e-01", "e-02"):
        router.blocks_stored(engine_id, asked.keys)
        router.view.load.ready_at[router.view.roster.engine_ids.index(engine_id)] = 3.0
    assert router.view.roster.engine_ids[LeastCost().choose(asked, router.view, 0.0, Random(1)).target] in (
        "e-01",
        "e-02",
    )


def test_a_busy_engine_does_not_recompute_blocks_that_others_hold() -> None:
    router, asked = pool(size=4), request(1, LONG)
    for target, engine_id in enumerate(router.view.roster.engine_ids[:3]):
        router.blocks_stored(engine_id, asked.keys)
        router.view.load.ready_at[target] = 3.0
    router.view.load.in_flight_requests[3] = 1
    assert LeastCost().choose(asked, router.view, 0.0, Random(1)).target != 3
    router.view.load.in_flight_requests[3] = 0
    assert LeastCost().choose(asked, router.view, 0.0, Random(1)).target == 3


HOT = range(100, 118)


def answers_on(router: Router, engine_id: str, count: int, *, blocks: range = HOT) -> None:
    """Let `count` responses to a prompt of these blocks decode on an engine."""
    target = router.fleet.known_target(engine_id)
    for number in range(count):
        asked = request(1000 * (target + 1) + number, blocks)
        others = frozenset(router.view.roster.engine_ids) - {engine_id}
        assert engine_of(router.place(asked, 0.0, hold=False, excluded=others)) == engine_id
        router.observe(FirstToken(asked.request_id), 0.0)
    router.blocks_stored(engine_id, request(0, blocks).keys)


def scores(router: Router, asked: InferenceRequest) -> dict[str, Candidate]:
    choice = LeastCost().choose(asked, router.view, 0.0, Random(1))
    return {candidate.engine_id: candidate for candidate in choice.candidates}


def test_a_hot_prefix_stays_on_its_engine_under_few_decodes_and_then_spreads_evenly() -> None:
    router, counts = pool(size=2), {"e-01": 0, "e-02": 0}
    for number in range(120):
        asked = request(number, HOT)
        engine_id = engine_of(router.place(asked, 0.0, hold=False))
        router.observe(FirstToken(asked.request_id), 0.0)
        router.blocks_stored(engine_id, asked.keys)
        counts[engine_id] += 1
        if number == 9:
            assert 10 in counts.values()
    assert 48 <= counts["e-01"] <= 72
    router.check()


def test_without_decode_weight_decodes_cost_nothing() -> None:
    router = pool(size=2, decode_weight=0.0)
    answers_on(router, "e-01", 200)
    router.report("e-01", 0, 0.0, room_tokens=0)
    costs = scores(router, request(1, HOT))
    assert costs["e-01"].sharing_s == 0.0
    assert min(costs, key=lambda item: costs[item].cost) == "e-01"


def test_each_cost_term_is_shown_and_their_sum_is_the_cost() -> None:
    router = pool(size=3)
    answers_on(router, "e-01", 200)
    router.report("e-01", 0, 0.0, room_tokens=100)
    asked = request(1, (*HOT, *range(4)))
    router.view.load.ready_at[1:] = [0.5, 0.5]
    for score in scores(router, asked).values():
        assert score.cost == pytest.approx(score.wait_s + 8.0 * score.compute_s + score.sharing_s)
    crowded = scores(router, asked)["e-01"]
    assert crowded.decode_s > 0 < crowded.late_s
    assert crowded.memory_s > 0


def test_late_tokens_count_for_all_requests_that_share_the_engine() -> None:
    """By hand: steps of 15 ms, 0.1 ms per answer and 30 ns per token; 75 of 100 ms count as on time."""
    router = pool(size=2, tpot_slo_s=0.1)
    router.view.decode.answer_s = 20.0
    answers_on(router, "e-01", 200)
    score = scores(router, request(1, HOT))["e-01"]
    prompt = 18 * 512
    own_s = 0.1e-3 + 30e-9 * prompt
    slowed_s = 200 * own_s
    late_s = 201 * (0.015 + slowed_s + own_s - 0.075) - 200 * (0.015 + slowed_s - 0.075)
    share = 5.0 / 0.1
    assert score.decode_s == pytest.approx(share * (slowed_s + 200 * own_s))
    assert score.late_s == pytest.approx(share * late_s)


@pytest.mark.parametrize("answer_s", [0.0, 0.05])
def test_short_responses_are_placed_by_prefill_alone(answer_s: float) -> None:
    router = pool(size=2)
    answers_on(router, "e-01", 20)
    router.view.decode.answer_s = answer_s
    score = scores(router, request(1, HOT))["e-01"]
    assert score.sharing_s <= 0.01 * 8.0 * router.view.compute_s(request(1, HOT), 0, 0)


def test_response_duration_is_learned_from_completed_requests() -> None:
    router, asked = pool(size=1), request(1, HOT)
    router.place(asked, 0.0, hold=False)
    router.observe(FirstToken(asked.request_id), 1.0)
    router.observe(Completed(asked.request_id), 4.0)
    assert router.view.decode.answer_s == 3.0


def test_a_prompt_waits_for_memory_held_by_decodes() -> None:
    router = pool(size=2)
    answers_on(router, "e-01", 4)
    asked = request(1, range(30))
    router.report("e-01", 0, 0.0, room_tokens=20_000)
    assert scores(router, asked)["e-01"].memory_s == 0.0
    router.report("e-01", 0, 0.0, room_tokens=0)
    assert scores(router, asked)["e-01"].memory_s > 0.0
    router.report("e-01", 0, 0.0, room_tokens=None)
    assert scores(router, asked)["e-01"].memory_s == 0.0


def test_full_memory_in_an_expired_report_costs_nothing_despite_later_dispatches() -> None:
    router = pool(size=2)
    answers_on(router, "e-01", 4)
    router.report("e-01", 0, 0.0, room_tokens=1_000)
    asked = request(1, (*HOT, *range(30)))
    assert scores(router, asked)["e-01"].memory_s > 0.0
    router.place(request(2, range(40, 70)), 0.0, hold=False, excluded=frozenset({"e-02"}))
    max_age_s = router.policy.dispatch_limit.report_ttl_s
    costs = {
        candidate.engine_id: candidate
        for candidate in LeastCost().choose(asked, router.view, max_age_s, Random(1)).candidates
    }
    assert costs["e-01"].memory_s == 0.0


def test_an_engine_with_fewer_decodes_is_preferred_to_one_with_a_shorter_wait() -> None:
    router = pool(size=4)
    for number in (1, 2, 3):
        answers_on(router, f"e-0{number}", 40, blocks=range(100 * number, 100 * number + 10))
    router.view.load.ready_at[3] = 0.2
    assert LeastCost().choose(request(1, range(8)), router.view, 0.0, Random(1)).candidates[0].engine_id == "e-04"


def test_engines_with_different_decode_speeds_are_scored_separately() -> None:
    router = pool(size=2)
    slow = DecodeCost(0.015, 1e-3, 300e-9)
    router.set_engines([*engines(1), *engines(2, decode_cost=slow)[1:]], 0.0)
    for name in ("e-01", "e-02"):
        answers_on(router, name, 10)
    costs = scores(router, request(1, HOT))
    assert costs["e-02"].decode_s == pytest.approx(10 * costs["e-01"].decode_s)


def test_a_pool_with_roles_places_its_prefills_without_decode_cost() -> None:
    router = pool(size=3)
    router.set_engines([*engines(2, role="prefill"), *engines(3, role="decode")[2:]], 0.0)
    outcome = router.place(request(1, HOT), 0.0, hold=False)
    router.place(request(2, HOT), 0.0, hold=False)
    assert all(candidate.sharing_s == 0.0 for candidate in outcome.decision.candidates)  # type: ignore[union-attr]
