"""The router's parts agree under any sequence of events, and no request is lost or dispatched twice."""

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.policy.dispatch_limit_document import DispatchLimitDocument
from routing.policy.fairness_document import FairnessDocument
from routing.registry import stage_pairs
from routing.router import Router
from routing.values.decision import Dispatched, Outcome, Queued, Rejected
from routing.values.observation import Completed, Failed, FirstToken
from simulator.baselines.registry import PLACEMENTS
from tests.routing.pools import engines, pool, request


class Ledger:
    """The state of each request, derived from a router's outcomes."""

    def __init__(self) -> None:
        self.waiting: set[str] = set()
        self.dispatched: set[str] = set()
        self.ended: set[str] = set()

    def note(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Rejected):
                assert outcome.request_id not in self.dispatched
                self.waiting.discard(outcome.request_id)
                self.ended.add(outcome.request_id)
            elif isinstance(outcome, Queued):
                self.waiting.add(outcome.decision.decision_id)
            else:
                assert outcome.decision.decision_id not in self.dispatched | self.ended
                self.waiting.discard(outcome.decision.decision_id)
                self.dispatched.add(outcome.decision.decision_id)


def step(router: Router, ledger: Ledger, rng: Random, now: float, number: int) -> None:
    kind = rng.choice(
        ["place"] * 5
        + ["first_token"] * 3
        + ["complete"] * 2
        + ["fail", "cancel", "tick", "engines", "report", "twice", "jump"]
    )
    if kind == "place":
        asked = request(number, [rng.randrange(3) for _ in range(rng.randrange(12))], at=now, tokens=6200)
        asked = msgspec.structs.replace(asked, tenant_id=rng.choice("abc"))
        ledger.note([router.place(asked, now, hold=rng.random() < 0.8)])
    elif kind == "tick":
        ledger.note(router.tick(now))
    elif kind == "report":
        room = rng.choice([None, 0, 7000, 100_000])
        ledger.note(router.report(f"e-{rng.randrange(6):02}", rng.choice([0, 0, 1, 5]), now, room))
    elif kind == "twice":
        name = rng.choice([*sorted(ledger.ended), "unknown"])
        assert router.observe(rng.choice([FirstToken, Completed, Failed])(name), now) == []
    elif kind == "jump":
        ledger.note(router.tick(now + 100.0))
    elif kind == "engines":
        facts = [
            msgspec.structs.replace(engine, accepts=rng.random() < 0.7, incarnation=rng.choice([1, 1, 1, 2]))
            for engine in engines(4)
            if rng.random() < 0.9
        ]
        ledger.note(router.set_engines(facts, now))
    else:
        pool_of = ledger.waiting if kind == "cancel" else ledger.dispatched
        if not pool_of:
            return
        name = rng.choice(sorted(pool_of))
        observation = {"first_token": FirstToken, "complete": Completed}.get(kind, Failed)(name)
        if kind != "first_token":
            pool_of.discard(name)
            ledger.ended.add(name)
        ledger.note(router.observe(observation, now))


PAIRS = [
    (placement, order)
    for placement, order in sorted(stage_pairs(PLACEMENTS))
    if order in ("slack", "late_binding") or placement in ("least_cost", "skywalker")
]
"""Each placement with the order of the most parts; the other orders with bound and with unbound requests."""


PUSHES = st.builds(
    DispatchLimitDocument, mode=st.sampled_from(["pending", "in_flight", "blind"]), in_flight_limit=st.integers(1, 3)
)
FAIRNESS = st.builds(FairnessDocument, enabled=st.booleans(), max_share=st.sampled_from([0.4, 1.0]))


@pytest.mark.parametrize(("placement", "order"), PAIRS)
@given(
    seed=st.integers(0, 2**32), dispatch_limit=PUSHES, fairness=FAIRNESS, starvation_limit_s=st.sampled_from([0.0, 2.0])
)
@settings(max_examples=15, deadline=None)
def test_no_request_is_lost_or_dispatched_twice(
    placement: str,
    order: str,
    seed: int,
    dispatch_limit: DispatchLimitDocument,
    fairness: FairnessDocument,
    starvation_limit_s: float,
) -> None:
    rng = Random(seed)
    rules = {"dispatch_limit": dispatch_limit, "fairness": fairness, "starvation_limit_s": starvation_limit_s}
    router, ledger, now = pool(placement, order, max_wait_s=20.0, **rules), Ledger(), 0.0  # type: ignore[arg-type]
    for number in range(80):
        now += rng.random()
        step(router, ledger, rng, now, number)
        router.check()
        assert len(router.waiting) == len(ledger.waiting)
    for _ in range(400):
        now += 0.5
        ledger.note(router.tick(now))
        for name in sorted(ledger.dispatched):
            ledger.dispatched.discard(name)
            ledger.ended.add(name)
            ledger.note(router.observe(Completed(name), now))
    assert not ledger.waiting
    assert not ledger.dispatched
    assert len(router.in_flight) == 0


def test_two_routers_with_the_same_inputs_make_the_same_decisions() -> None:
    def run() -> list[Outcome]:
        router, rng = pool(size=8), Random(4)
        outcomes: list[Outcome] = []
        for number in range(200):
            asked = request(number, [rng.randrange(4) for _ in range(8)], at=number * 0.1)
            outcomes += [router.place(asked, number * 0.1), *router.tick(number * 0.1 + 0.05)]
            outcomes += router.observe(FirstToken(f"request-{number // 2:08}"), number * 0.1 + 0.06)
        return outcomes

    first = run()
    assert first == run()
    assert any(isinstance(item, Dispatched) for item in first)
