"""Small pools and requests for the routing tests."""

from collections.abc import Iterable
from random import Random

from kvstore.keys.block_keys import rekey_hashes
from routing.ledger.fleet_view import EngineFacts
from routing.placements.placement import Placement
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.router import Router
from routing.values.decision import Choice, Dispatched, Outcome
from routing.values.inference_request import InferenceRequest
from simulator.baselines.registry import PLACEMENTS

BLOCK = 512


def request(
    number: int = 1,
    blocks: Iterable[int] = (1, 2),
    *,
    at: float = 0.0,
    slo: float = 5.0,
    tokens: int | None = None,
    priority: int = 0,
) -> InferenceRequest:
    keys = rekey_hashes(3, tuple(blocks))
    length = BLOCK * len(keys) if tokens is None else tokens
    return InferenceRequest(f"request-{number:08}", keys, length, BLOCK, at, slo, priority=priority)


def engines(count: int, **facts: object) -> list[EngineFacts]:
    return [EngineFacts(f"e-{number + 1:02}", 1, **{"accepts": True, **facts}) for number in range(count)]  # type: ignore[arg-type]


def pool(
    placement: str = "least_cost",
    order: str = "fifo",
    *,
    size: int = 4,
    params: dict[str, bool | int | float | str] | None = None,
    order_params: dict[str, bool | int | float | str] | None = None,
    **settings: float,
) -> Router:
    policy = RoutingPolicy(
        placement=Stage(name=placement, params=params or {}),
        order=Stage(name=order, params=order_params or {}),
        **settings,  # type: ignore[arg-type]
    )
    router = Router("pool", policy, 1, placements=PLACEMENTS)
    router.set_engines(engines(size), 0.0)
    return router


def engine_of(outcome: Outcome) -> str:
    assert isinstance(outcome, Dispatched), outcome
    return outcome.decision.engine_id


def choice_of(router: Router, placement: Placement, asked: InferenceRequest, *, now: float = 0.0) -> Choice:
    return placement.choose(asked, router.view, now, Random(1))


def chosen_by(router: Router, placement: Placement, asked: InferenceRequest, *, now: float = 0.0) -> str:
    return choice_of(router, placement, asked, now=now).candidates[0].engine_id


def busy(
    router: Router,
    engine_id: str,
    *,
    requests: int | None = None,
    wait_s: float | None = None,
    tokens: int | None = None,
) -> None:
    """Add this much work to an engine in the view."""
    target, view = router.fleet.target_of(engine_id), router.view
    assert target is not None
    if requests is not None:
        view.load.in_flight_requests[target] = view.load.pending_requests[target] = requests
    if tokens is not None:
        view.load.in_flight_tokens[target] = tokens
    if wait_s is not None:
        view.load.ready_at[target] = wait_s
