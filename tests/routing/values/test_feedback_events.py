"""The router's feedback to a learning placement."""

from random import Random

import msgspec
import pytest

from routing import registry
from routing.ledger.fleet_view import FleetView
from routing.placements.least_cost import LeastCost
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.router import Router
from routing.values.decision import Choice
from routing.values.feedback_events import Answered, Bound, FeedbackEvent, Released
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, Failed, FirstToken
from tests.routing.pools import engines, request

LONG = range(20)
NOTEBOOK: list[FeedbackEvent] = []


class Pupil(msgspec.Struct, frozen=True):
    depth: int = 1

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        return LeastCost().choose(request, view, now, rng)

    def learn(self, event: FeedbackEvent) -> None:
        NOTEBOOK.append(event)


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> Router:
    NOTEBOOK.clear()
    monkeypatch.setitem(registry.PLACEMENTS, "pupil", Pupil)
    router = Router("pool", RoutingPolicy(placement=Stage(name="pupil")), 1)
    router.set_engines(engines(1), 0.0)
    return router


def test_a_request_is_bound_answered_and_released(router: Router) -> None:
    asked = request(1, LONG)
    router.place(asked, 0.0)
    router.observe(FirstToken(asked.request_id), 1.0)
    router.observe(FirstToken(asked.request_id), 1.1)
    router.observe(Completed(asked.request_id), 2.0)
    assert [
        Bound(asked, "e-01", 0, 0.0),
        Answered(asked, "e-01", 1.0),
        Released(asked, "e-01", 2.0, True),
    ] == NOTEBOOK


def test_a_failed_request_is_released_as_unfinished(router: Router) -> None:
    asked = request(1, LONG)
    router.place(asked, 0.0)
    router.observe(Failed(asked.request_id), 0.5)
    assert NOTEBOOK[-1] == Released(asked, "e-01", 0.5, False)


def test_every_binding_is_released_once_when_the_engine_is_removed(router: Router) -> None:
    for number in range(4):
        router.place(request(number, LONG), 0.0)
    router.set_engines([msgspec.structs.replace(engines(1)[0], incarnation=2)], 1.0)
    bound = [item.request.request_id for item in NOTEBOOK if isinstance(item, Bound)]
    released = [item.request.request_id for item in NOTEBOOK if isinstance(item, Released)]
    assert sorted(released) == [f"request-{number:08}" for number in range(4)]
    assert len(bound) == 4 + 3
    router.check()


def test_a_policy_with_the_same_placement_keeps_the_learned_state(router: Router) -> None:
    before = router._dispatcher.placement
    router.set_policy(RoutingPolicy(placement=Stage(name="pupil"), ttft_slo_s=3.0), 2, 0.0)
    assert router._dispatcher.placement is before
    router.set_policy(RoutingPolicy(placement=Stage(name="pupil", params={"depth": 2})), 3, 0.0)
    assert router._dispatcher.placement is not before
