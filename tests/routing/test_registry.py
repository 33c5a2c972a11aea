"""The contract of every placement and every queue order, over the live table and the simulator's."""

import math
import re
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.ledger.reservations import Reservation
from routing.placements.placement import Placement
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.registry import (
    BASELINES,
    QUEUE_ORDERS,
    PolicyStageError,
    build_placement,
    build_queue_order,
    nearest_live,
    stage_problems,
)
from routing.registry import (
    PLACEMENTS as LIVE,
)
from routing.router import Router
from routing.trials.arms import CANARY, ArmEntry
from routing.values.decision import CENTRAL
from simulator.baselines.registry import PLACEMENTS
from tests.routing.pools import BLOCK, engines, pool, request


@pytest.fixture(params=sorted(PLACEMENTS))
def placement(request: pytest.FixtureRequest) -> Placement:
    return build_placement(Stage(name=request.param), PLACEMENTS)


def busy_pool(size: int) -> Router:
    router = pool(size=size)
    router.view.sending_until = {}
    router.blocks_stored("e-01", request(0, range(8)).keys)
    for number in range(3 * size):
        router.place(request(number, range(number % 8 + 1)), 0.0, hold=False)
    return router


def loads(router: Router) -> list[object]:
    view = router.view
    lists = (view.load.ready_at, view.load.in_flight_tokens, view.load.in_flight_requests, view.load.pending_requests)
    blocks = (view.load.active_blocks, view.load.sent_blocks, view.roster.speeds, view.roster.trusts)
    return [
        view.roster.version,
        view.load.decisions,
        view.roster.accepting,
        *(list(block) for block in (*lists, *blocks)),
    ]


@given(st.lists(st.integers(0, 9), max_size=9), st.integers(1, 9), st.integers(0, 2**32))
def test_a_placement_chooses_an_accepting_engine_and_explains_it(blocks: list[int], size: int, seed: int) -> None:
    router = busy_pool(size)
    facts = engines(size)
    facts[0] = msgspec.structs.replace(facts[0], accepts=size == 1)
    router.set_engines(facts, 0.0)
    asked = request(99, blocks, tokens=BLOCK * len(blocks) + 1)
    for name in PLACEMENTS:
        choice = build_placement(Stage(name=name), PLACEMENTS).choose(asked, router.view, 0.5, Random(seed))
        best = choice.candidates[0]
        assert choice.reason
        assert choice.target == CENTRAL or best.engine_id == router.view.roster.engine_ids[choice.target]
        assert router.fleet.target_of(best.engine_id) in router.view.roster.accepting
        assert len({candidate.engine_id for candidate in choice.candidates}) == len(choice.candidates)
        for candidate in choice.candidates:
            assert all(math.isfinite(number) for number in (candidate.wait_s, candidate.compute_s, candidate.cost))
            assert 0 <= candidate.hit_tokens <= asked.prompt_tokens
            assert candidate.compute_s > 0
            assert candidate.wait_s >= 0


@given(st.sets(st.integers(1, 6), max_size=5), st.integers(0, 2**32))
def test_an_excluded_engine_is_neither_chosen_nor_a_candidate(numbers: set[int], seed: int) -> None:
    router, excluded = busy_pool(6), frozenset(f"e-{number:02}" for number in numbers)
    view = router.view.without(excluded)
    for name in PLACEMENTS:
        choice = build_placement(Stage(name=name), PLACEMENTS).choose(request(99, range(8)), view, 0.5, Random(seed))
        assert not excluded & {candidate.engine_id for candidate in choice.candidates}
        assert choice.fetch is None or choice.fetch.source_engine_id not in excluded


def test_the_same_seed_produces_the_same_choice(placement: Placement) -> None:
    one, two = busy_pool(6), busy_pool(6)
    asked = request(99, range(4))
    assert placement.choose(asked, one.view, 1.0, Random(5)) == placement.choose(asked, two.view, 1.0, Random(5))


def test_choosing_leaves_the_view_unchanged(placement: Placement) -> None:
    router = busy_pool(6)
    before = loads(router)
    placement.choose(request(99, range(4)), router.view, 1.0, Random(1))
    assert loads(router) == before


def test_a_placement_uses_the_only_engine(placement: Placement) -> None:
    router = busy_pool(1)
    choice = placement.choose(request(99), router.view, 0.0, Random(1))
    assert [candidate.engine_id for candidate in choice.candidates] == ["e-01"]


@pytest.mark.parametrize("name", sorted(PLACEMENTS))
def test_an_empty_fleet_defers_the_request_whatever_the_placement(name: str) -> None:
    router = pool(name, "late_binding" if name == "central" else "fifo", size=0)
    router.place(request(1), 0.0)
    assert router.unbound(1.0) == (1, 2 * BLOCK, 1.0)


@pytest.mark.parametrize("name", sorted(QUEUE_ORDERS))
@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0.01, 9)), min_size=1, max_size=9), st.floats(0, 20))
def test_an_order_serves_every_queued_request_once_and_next_changes_nothing(
    name: str, waiting: list[tuple[float, float]], now: float
) -> None:
    router = pool()
    queued_requests = [Reservation(request(number, at=at), 0, cost, 0) for number, (at, cost) in enumerate(waiting)]
    queue = build_queue_order(Stage(name=name)).queue()
    for queued in queued_requests:
        queue.add(queued)
    before = loads(router)
    while queued_requests:
        chosen = queue.next(0, router.view, now).queued
        assert queue.next(0, router.view, now).queued == chosen
        queue.check()
        queue.remove(chosen)
        queued_requests.remove(chosen)
        now += chosen.compute_s
    assert loads(router) == before


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        PolicyStageError,
        match=r"order\.name: 'edff' is unknown; known are edf, fifo, late_binding, late_last, priority, slack",
    ):
        build_queue_order(Stage(name="edff"))


def test_the_simulator_adds_only_the_baselines() -> None:
    assert PLACEMENTS.keys() - LIVE.keys() == BASELINES
    assert [name for name in LIVE if PLACEMENTS[name] is not LIVE[name]] == ["mooncake"]
    assert issubclass(PLACEMENTS["mooncake"], LIVE["mooncake"])


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_a_live_router_accepts_no_baseline(name: str) -> None:
    policy = RoutingPolicy(placement=Stage(name=name))
    says = f"placement.name: {name!r} is a baseline for simulation and what-if only; use {nearest_live(name)!r}, "
    with pytest.raises(PolicyStageError, match=re.escape(says)):
        Router("pool", policy, 1)
    router = Router("pool", RoutingPolicy(), 1)
    entry = ArmEntry(arm=CANARY, trial_id="trial", share=0.5, placement=policy.placement)
    for rejected in (lambda: router.set_policy(policy, 2, 0.0), lambda: router.arms.built([entry], "late_last")):
        with pytest.raises(PolicyStageError, match=re.escape(says)):
            rejected()
    assert router.policy_version == 1


@pytest.mark.parametrize(
    ("placement", "order", "problem"),
    [
        ("central", "late_last", r"order\.name: 'late_last' binds no request .* orders that do: late_binding"),
        ("least_cost", "late_binding", r"placement\.name: order 'late_binding' .* use 'central'"),
        ("skywalker", "late_binding", r"placement\.name: order 'late_binding' .* use 'central'"),
    ],
)
def test_an_incompatible_placement_and_order_are_rejected(placement: str, order: str, problem: str) -> None:
    policy = RoutingPolicy(placement=Stage(name=placement), order=Stage(name=order))
    assert len(stage_problems(policy)) == 1
    with pytest.raises(PolicyStageError, match=problem):
        Router("pool", policy, 1)
    router = pool()
    with pytest.raises(PolicyStageError, match=problem):
        router.set_policy(policy, 2, 0.0)
    assert router.policy_version == 1


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"beta": -1.0}, "placement.params: Expected `float` >= 0.01"),
        ({"beta": "big"}, "placement.params: Expected `float`, got `str`"),
        ({"gamma": 1}, "placement.params: Object contains unknown field `gamma`"),
    ],
)
def test_invalid_parameters_are_rejected_with_their_path(params: dict[str, float | str], problem: str) -> None:
    policy = RoutingPolicy(placement=Stage(name="least_cost", params=params), order=Stage(name="none"))
    problems = stage_problems(policy)
    assert problems[0].startswith(problem)
    assert len(problems) == 2
