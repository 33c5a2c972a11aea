"""A shadow policy uses the live policy's inputs, reports its own choice, and changes nothing."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.cost.cost_model import PrefillCost
from routing.ledger.fleet_view import EngineFacts, FleetView
from routing.placements.consistent_hash import ConsistentHash
from routing.policy.policy_document import PrefillCostDocument, RoutingPolicy, Stage
from routing.registry import PLACEMENTS
from routing.router import Router
from routing.trials.shadow import ShadowComparison, ShadowPolicy, shadow_problem, uncompared_parts
from routing.values.decision import Choice, Outcome
from routing.values.feedback_events import Bound, FeedbackEvent, Released
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, FirstToken
from tests.routing.pools import busy, chosen_by, engine_of, engines, pool, request

BINDING = sorted(name for name in PLACEMENTS if name != "central")


class Watching:
    """Compare every choice."""

    def __init__(self, policy: RoutingPolicy, router: Router) -> None:
        self.shadow = ShadowPolicy(policy, router.view)
        self.compared: list[ShadowComparison | None] = []
        self.lessons: list[FeedbackEvent] = []

    def placed(self, request: InferenceRequest, choice: Choice, view: FleetView, now: float) -> None:
        self.compared.append(self.shadow.compare(request, choice, view, now))

    def learn(self, event: FeedbackEvent) -> None:
        self.lessons.append(event)
        self.shadow.learn(event)


def policy(name: str, **fields: object) -> RoutingPolicy:
    return RoutingPolicy(placement=Stage(name=name), **fields)  # type: ignore[arg-type]


def story(router: Router, seed: int) -> Iterator[list[Outcome]]:
    """Drive the router through the events of a pool, and yield its outcomes."""
    rng, now, under_way = Random(seed), 0.0, []
    for number in range(120):
        now += rng.random() * 0.2
        kind = rng.choice(["place"] * 6 + ["first_token", "complete", "complete", "tick", "engines", "widen", "stored"])
        if kind == "place":
            asked = request(number, [rng.randrange(4) for _ in range(rng.randrange(1, 80))], at=now)
            excluded = frozenset(["e-01"]) if rng.random() < 0.1 else frozenset()
            under_way.append(asked.request_id)
            yield [router.place(asked, now, hold=rng.random() < 0.7, excluded=excluded)]
        elif kind in ("first_token", "complete") and under_way:
            name = rng.choice(under_way)
            yield router.observe(FirstToken(name) if kind == "first_token" else Completed(name), now)
        elif kind == "engines":
            facts = [
                EngineFacts(
                    engine.engine_id, 1, accepts=rng.random() < 0.8, cost=rng.choice([None, PrefillCost(base_s=1)])
                )
                for engine in engines(6)
            ]
            yield router.set_engines(facts, now)
        elif kind == "widen":
            router.view.roster.widened = {rng.randrange(1 << 16): 4}
            router.view.forget_derived()
        elif kind == "stored":
            router.blocks_stored("e-02", request(0, [rng.randrange(4)]).keys)
        else:
            yield router.tick(now)


@pytest.mark.parametrize("live", ["least_cost", "dual_map", "least_loaded", "lbgr"])
@given(seed=st.integers(0, 2**32), draft=st.sampled_from(BINDING))
@settings(max_examples=12, deadline=None)
def test_live_decisions_are_the_same_with_and_without_a_shadow(live: str, draft: str, seed: int) -> None:
    alone, watched = (pool(live, "slack", size=6, max_wait_s=3.0) for _ in range(2))
    watching = Watching(policy(draft, cost="fixed"), watched)
    watched.accompany(watching)
    assert list(story(alone, seed)) == list(story(watched, seed))
    assert watched.loads(1e3) == alone.loads(1e3)
    watched.check()
    assert watching.compared


def test_a_shadow_of_the_same_policy_always_agrees() -> None:
    router = pool("dual_map", size=6)
    watching = Watching(policy("dual_map", cost="fitted"), router)
    router.accompany(watching)
    for _ in story(router, 7):
        pass
    compared = [item for item in watching.compared if item is not None]
    assert len(compared) > 40
    assert all(item.agreed and item.gain_s == 0 == item.gain_hit_tokens for item in compared)
    assert any(isinstance(lesson, Bound) for lesson in watching.lessons)
    assert any(isinstance(lesson, Released) for lesson in watching.lessons)


def after_a_warm_up(live: str, draft: str) -> ShadowComparison:
    """Return the comparison of a request whose prompt is cached on a busy engine."""
    router = pool(live)
    holder = chosen_by(router, ConsistentHash(), request(1, range(8)))
    router.blocks_stored(holder, request(1, range(8)).keys)
    busy(router, holder, wait_s=31.0, tokens=400_000)
    watching = Watching(policy(draft), router)
    router.accompany(watching)
    router.place(request(2, range(8), at=1.0), 1.0, hold=False)
    compared = watching.compared[-1]
    assert compared is not None
    return compared


def test_a_better_draft_predicts_a_gain_and_a_worse_one_a_loss() -> None:
    better = after_a_warm_up("consistent_hash", "mooncake")
    assert not better.agreed
    assert better.gain_s == pytest.approx(better.live.wait_s + better.live.compute_s - better.shadow.cost)
    assert 29 < better.gain_s < 30.1
    assert better.gain_hit_tokens == -8 * 512
    worse = after_a_warm_up("mooncake", "consistent_hash")
    assert worse.gain_s == pytest.approx(-better.gain_s)
    assert worse.gain_hit_tokens == 8 * 512


def test_both_choices_are_evaluated_with_the_live_costs() -> None:
    router = pool("round_robin", prefill_cost=PrefillCostDocument(base_s=2.0))  # type: ignore[arg-type]
    draft = policy("least_loaded", prefill_cost=PrefillCostDocument(base_s=9.0))
    watching = Watching(draft, router)
    router.accompany(watching)
    router.place(request(1), 0.0, hold=False)
    (compared,) = watching.compared
    assert compared is not None
    assert compared.shadow.compute_s == compared.live.compute_s < 3


def test_a_draft_with_fixed_costs_does_not_use_learned_ones() -> None:
    router = pool("mooncake", size=2)
    slow = EngineFacts("e-01", 1, accepts=True, cost=PrefillCost(base_s=5.0))
    router.set_engines([slow, EngineFacts("e-02", 1, accepts=True)], 0.0)
    busy(router, "e-02", wait_s=1.0)
    watching = Watching(policy("mooncake"), router)
    router.accompany(watching)
    assert engine_of(router.place(request(1), 0.0, hold=False)) == "e-02"
    (compared,) = watching.compared
    assert compared is not None
    assert compared.shadow.engine_id == "e-01"
    assert compared.gain_s < -3


def test_a_retry_and_an_unbound_request_are_not_compared() -> None:
    router = pool(size=0)
    watching = Watching(policy("mooncake"), router)
    router.accompany(watching)
    router.place(request(1), 0.0)
    router.set_engines(engines(2), 1.0)
    router.place(request(2), 1.0, excluded=frozenset(["e-01"]))
    assert watching.compared == []
    router.accompany(None)
    router.place(request(3), 1.0)
    assert watching.compared == []


def test_policy_parts_that_a_shadow_cannot_compare_are_named() -> None:
    live = policy("least_cost", order=Stage(name="fifo"), cost="fitted")
    draft = policy("mooncake", order=Stage(name="edf"), prefill_window_tokens=4096, cost="fixed")
    assert uncompared_parts(live, draft) == ("order", "prefill_window_tokens")
    assert uncompared_parts(draft, live) == ("order", "cost", "prefill_window_tokens")
    assert shadow_problem(live, draft) == ""
    assert "pull" in shadow_problem(live, policy("central"))
    same = shadow_problem(live, policy("least_cost", order=Stage(name="edf"), cost="fitted"))
    assert "different: order" in same


def test_a_draft_with_another_decode_weight_is_compared_with_its_own_weight() -> None:
    live, draft = policy("least_cost"), policy("least_cost", decode_weight=0.0)
    assert shadow_problem(live, draft) == ""
    router = Router("pool", live, 1)
    router.set_engines(engines(2), 0.0)
    hot = tuple(range(100, 118))
    for number in range(80):
        asked = request(number, hot)
        assert engine_of(router.place(asked, 0.0, hold=False, excluded=frozenset({"e-02"}))) == "e-01"
        router.observe(FirstToken(asked.request_id), 0.0)
    router.blocks_stored("e-01", request(0, hot).keys)
    asked = request(99, hot, at=1.0)
    choice = router.arms.live.choose(asked, router.view, 1.0, Random(1))
    compared = ShadowPolicy(draft, router.view).compare(asked, choice, router.view, 1.0)
    assert compared is not None
    assert (compared.live.engine_id, compared.shadow.engine_id) == ("e-02", "e-01")
