"""Queued requests of overloaded engines move to their other candidate, largest gain first, and none is lost."""

from __future__ import annotations

from itertools import accumulate
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.ledger.fleet_view import EngineFacts
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.router import Router
from routing.values import reasons
from routing.values.decision import Dispatched, Queued
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, FirstToken

BLOCK = 512


def policy(**params: bool | str) -> RoutingPolicy:
    return RoutingPolicy(
        placement=Stage(name="dual_map", params={"adaptive_key": False, **params}),
        order=Stage(name="fifo"),
        ttft_slo_s=1.0,
        prefill_window_tokens=1,
        lookahead_s=0.0,
    )


def router(engines: int = 2, **params: bool | str) -> Router:
    made = Router("pool", policy(**params), 1)
    made.set_engines([EngineFacts(f"e-{number}", 1, True) for number in range(engines)], 0.0)
    return made


def request(name: str, keys: tuple[int, ...], at_s: float) -> InferenceRequest:
    return InferenceRequest(name, keys, BLOCK * len(keys), BLOCK, at_s, 1.0)


def place(made: Router, count: int, at_s: float, *, prefix: int = 1) -> list[Dispatched | Queued]:
    """Submit requests that share a prefix of eight blocks and have ten unique ones."""
    return [
        made.place(
            request(
                f"r-{prefix}-{number}", (*range(prefix, prefix + 8), *range(1000 * number, 1000 * number + 10)), at_s
            ),
            at_s,
        )
        for number in range(1, count + 1)
    ]  # type: ignore[return-value]


def overload(made: Router) -> None:
    """Bind all requests of one prefix to its holder until both candidates would miss the objective."""
    made.blocks_stored("e-0", tuple(range(1, 9)))
    place(made, 12, 0.0)


def test_nothing_moves_while_one_candidate_would_be_on_time() -> None:
    made = router()
    made.blocks_stored("e-0", tuple(range(1, 9)))
    place(made, 2, 0.0)
    assert not made.migration.due
    assert made.migration.moved == 0


def test_an_overloaded_engine_is_relieved_at_the_next_opportunity() -> None:
    made = router()
    overload(made)
    assert made.migration.due
    assert made.next_wake(0.0) == 0.0
    made.tick(0.0)
    assert not made.migration.due
    made.check()


def test_a_moved_queued_request_is_marked_and_keeps_its_arrival_time() -> None:
    made = router(selection="affinity")
    made.blocks_stored("e-0", tuple(range(1, 9)))
    holder = made.fleet.known_target("e-0")
    # Ten queued requests of half a second on the holder, none on the other: the last ones gain seconds by moving.
    for number in range(10):
        keys = (*range(1, 9), *range(1000 * number, 1000 * number + 10))
        made.place(request(f"r-{number}", keys, 0.0), 0.0)
    names = [queued.request.request_id for queued in made.waiting.of(holder)]
    assert len(names) > 2
    made.migration._hot.add("e-0")
    outcomes = made.tick(0.01)
    assert made.migration.moved >= 1
    moved = [
        outcome.decision
        for outcome in outcomes
        if isinstance(outcome, Dispatched) and outcome.decision.engine_id == "e-1"
    ]
    waiting = [
        made.waiting.decision(item.request.request_id) for item in made.waiting.of(made.fleet.known_target("e-1"))
    ]
    queued_requests = [item for item in (*moved, *waiting) if item.reason == reasons.MIGRATED]
    assert queued_requests
    for decision in queued_requests:
        assert decision.candidates[0].engine_id == "e-1"
        assert {candidate.engine_id for candidate in decision.candidates} == {"e-0", "e-1"}
    made.check()


def pair_of(prefix: int) -> set[str]:
    """Return the two of three engines that dual_map assigns to this prefix."""
    (outcome,) = place(router(engines=3), 1, 0.0, prefix=prefix)
    return {candidate.engine_id for candidate in outcome.decision.candidates}


def test_a_request_without_a_good_candidate_moves_queued_requests_to_free_engines() -> None:
    hot = next(number for number in range(1, 1000, 8) if pair_of(number) == {"e-0", "e-1"})
    cool = next(number for number in range(1, 1000, 8) if pair_of(number) == {"e-0", "e-2"})
    made = router(engines=3)
    made.blocks_stored("e-0", tuple(range(cool, cool + 8)))
    for engine_id in ("e-0", "e-1"):
        made.blocks_stored(engine_id, tuple(range(hot, hot + 8)))
    place(made, 2, 0.0, prefix=cool)
    assert len(made.waiting.of(made.fleet.known_target("e-0"))) == 1
    place(made, 4, 0.0, prefix=hot)
    assert made.migration.due
    outcomes = made.tick(0.0)
    (dispatched,) = (outcome.decision for outcome in outcomes if isinstance(outcome, Dispatched))
    assert (dispatched.decision_id, dispatched.engine_id, dispatched.reason) == (f"r-{cool}-2", "e-2", reasons.MIGRATED)
    assert made.migration.moved == 1
    made.check()


def test_the_largest_gain_moves_first_from_any_queue_position() -> None:
    made = router(selection="affinity")
    prompts = [tuple(range(1000 * number, 1000 * number + 18)) for number in range(1, 6)]
    for number, keys in enumerate(prompts):
        made.blocks_stored("e-0", keys[:8])
        made.place(request(f"r-{number}", keys, 0.0), 0.0)
    here, other = (made.fleet.known_target(name) for name in ("e-0", "e-1"))
    # The other engine has computed one from the middle, and none of the rest.
    made.blocks_stored("e-1", prompts[3])
    queued_requests = made.waiting.of(here)
    ends_s = accumulate(
        (queued_request.compute_s for queued_request in queued_requests), initial=made.reservations.free_at(here)
    )
    there_s = [
        made.view.compute_s(queued.request, other, 18 * BLOCK * (at == 2)) for at, queued in enumerate(queued_requests)
    ]
    gains = [end - there for end, there in zip(list(ends_s)[1:], there_s, strict=True)]
    assert gains.index(max(gains)) == 2
    made.migration.relieve_engine("e-0", 1, 0.0)
    assert made.migration.moved == 1
    moved = made.reservations.get("r-3")
    assert moved is not None
    assert moved.target == other
    made.check()


def held_up(queued_requests: int) -> Router:
    """Return a router with an engine delayed since a prefill at 0 s, requests from 2.9 s on, and an idle engine."""
    settings = msgspec.structs.replace(policy(), bottleneck_s=3.0, ttft_slo_s=6.0)
    made = Router("pool", settings, 1)
    made.set_engines([EngineFacts(f"e-{number}", 1, True) for number in range(2)], 0.0)
    made.blocks_stored("e-0", tuple(range(1, 9)))
    for number in range(queued_requests + 1):
        at_s = 2.9 if number else 0.0
        asked = request(f"r-{number}", (*range(1, 9), *range(1000 * number, 1000 * number + 10)), at_s)
        made.place(msgspec.structs.replace(asked, ttft_slo_s=6.0), at_s)
    assert len(made.waiting.of(made.fleet.known_target("e-0"))) == queued_requests
    return made


def test_queued_requests_of_an_engine_delayed_by_decodes_move_once_late() -> None:
    """Corrected TTFT = D + T_q + T_c (DualMap A.8.3)."""
    made = held_up(1)
    target = made.fleet.known_target("e-0")
    (queued,) = made.waiting.of(target)
    moved_at, now, detected_s = 0.0, 2.9, 0.0
    while not made.migration.moved:
        wake = made.next_wake(now)
        assert wake is not None
        now = max(wake, now + 0.01)
        detected_s = detected_s or (now if now >= 3.0 else 0.0)
        queue_s = max(made.reservations.free_at(target) - now, 0.0)
        delay_s = now - detected_s if detected_s and now - detected_s >= 1.5 else 0.0
        corrected_s = now - 2.9 + delay_s + queue_s + queued.compute_s
        made.tick(now)
        assert bool(made.migration.moved) == (corrected_s > 6.0), now
        moved_at = now
    assert 5.0 < moved_at < 5.4
    made.check()


def test_only_queued_requests_that_the_delay_makes_late_move() -> None:
    for queued_requests, moved in ((2, 0), (3, 1)):
        made = held_up(queued_requests)
        made.tick(3.15)
        made.tick(5.5)
        assert made.migration.moved == moved


def test_a_request_leaves_a_delayed_engine_only_if_that_costs_less_than_the_delay() -> None:
    for delay_s, moved in ((0.3, 0), (2.5, 1)):
        made = router(selection="affinity", engines=2)
        keys = tuple(range(1, 9))
        made.blocks_stored("e-0", keys)
        place(made, 4, 0.0, prefix=1)
        here = made.fleet.known_target("e-0")
        made.reservations.delay(here, delay_s)
        queued = made.waiting.of(here)[0]
        lost_s = made.view.compute_s(queued.request, 1 - here, 0) - queued.compute_s
        assert (lost_s > delay_s) is not bool(moved)
        made.migration.relieve_engine("e-0", 1, 0.0)
        assert made.migration.moved == moved


def test_a_delayed_engine_keeps_its_queued_requests_without_rebalancing() -> None:
    made = held_up(3)
    made.set_policy(msgspec.structs.replace(made.policy, placement=policy(rebalance=False).placement), 2, 2.95)
    made.tick(3.15)
    made.tick(6.5)
    assert not made.migration.moved


def test_without_rebalancing_no_engine_is_hot() -> None:
    made = router(rebalance=False)
    overload(made)
    assert not made.migration.due


def test_an_engine_is_not_relieved_again_immediately() -> None:
    made = router()
    overload(made)
    made.tick(0.0)
    made.place(request("late", (*range(1, 9), 77, 78), 0.01), 0.01)
    assert not made.migration.due
    made.place(request("later", (*range(1, 9), 79, 80), 0.06), 0.06)
    assert made.migration.due


@given(st.integers(0, 10_000))
@settings(max_examples=40)
def test_no_queued_request_is_lost_or_dispatched_twice(seed: int) -> None:
    rng = Random(seed)
    made = router(engines=3)
    now, submitted, dispatched, finished = 0.0, set(), set(), set()

    def take(outcomes: list[object]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Dispatched):
                name = outcome.decision.decision_id
                assert name not in dispatched
                dispatched.add(name)

    for number in range(120):
        now += rng.random() * 0.1
        what = rng.random()
        if what < 0.6:
            prefix = rng.choice((1, 1, 1, 50))
            name = f"r-{number}"
            keys = (*range(prefix, prefix + 8), *range(1000 * number + 500, 1000 * number + 510))
            submitted.add(name)
            take([made.place(request(name, keys, now), now)])
        elif what < 0.8 and dispatched - finished:
            name = min(dispatched - finished)
            finished.add(name)
            take(made.observe(FirstToken(name), now))
            take(made.observe(Completed(name), now))
        else:
            take(made.tick(now))
        made.check()
    assert dispatched <= submitted
    assert len(submitted) == len(dispatched) + len(made.waiting)


def test_late_queued_requests_are_placed_again_when_an_engine_joins() -> None:
    made = Router("pool", RoutingPolicy(order=Stage(name="fifo"), ttft_slo_s=1.0, prefill_window_tokens=1), 1)
    made.set_engines([EngineFacts("e-0", 1, True)], 0.0)
    placed = place(made, 12, 0.0)
    assert sum(isinstance(outcome, Queued) for outcome in placed) == 11
    joined = made.set_engines([EngineFacts("e-0", 1, True), EngineFacts("e-1", 1, True)], 1.0)
    assert [outcome.decision.engine_id for outcome in joined if isinstance(outcome, Dispatched)] == ["e-1"]
    loads = {load.engine_id: load.bound for load in made.loads(1.0)}
    assert sum(loads.values()) == 10
    assert abs(loads["e-0"] - loads["e-1"]) <= 2
    # Requests that are on time where they are do not move.
    calm = Router("pool", RoutingPolicy(order=Stage(name="fifo"), ttft_slo_s=60.0, prefill_window_tokens=1), 1)
    calm.set_engines([EngineFacts("e-0", 1, True)], 0.0)
    for number in range(4):
        calm.place(msgspec.structs.replace(request(f"c-{number}", (number,) * 8, 0.0), ttft_slo_s=60.0), 0.0)
    assert calm.set_engines([EngineFacts("e-0", 1, True), EngineFacts("e-1", 1, True)], 1.0) == []
