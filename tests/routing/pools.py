"""Small pools and requests for the routing tests."""

from collections.abc import Iterable

from kvstore.block_keys import rekey_hashes
from routing.decision import Granted, Outcome
from routing.fleet import EngineFacts
from routing.inference_request import InferenceRequest
from routing.policy_document import RoutingPolicy, Stage
from routing.router import Router

BLOCK = 512


def request(
    number: int = 1, blocks: Iterable[int] = (1, 2), *, at: float = 0.0, slo: float = 5.0, tokens: int | None = None
) -> InferenceRequest:
    keys = rekey_hashes(3, tuple(blocks))
    length = BLOCK * len(keys) if tokens is None else tokens
    return InferenceRequest(f"request-{number:08}", keys, length, BLOCK, at, slo)


def engines(count: int, **facts: object) -> list[EngineFacts]:
    return [EngineFacts(f"e-{number + 1:02}", 1, **{"accepts": True, **facts}) for number in range(count)]  # type: ignore[arg-type]


def pool(
    placement: str = "least_cost",
    order: str = "fifo",
    *,
    size: int = 4,
    params: dict[str, bool | int | float | str] | None = None,
    **settings: float,
) -> Router:
    policy = RoutingPolicy(
        placement=Stage(name=placement, params=params or {}),
        order=Stage(name=order),
        **settings,  # type: ignore[arg-type]
    )
    router = Router("pool", policy, 1)
    router.set_engines(engines(size), 0.0)
    return router


def engine_of(outcome: Outcome) -> str:
    assert isinstance(outcome, Granted), outcome
    return outcome.decision.engine_id
