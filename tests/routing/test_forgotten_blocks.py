"""Blocks of queued requests given up by late-last attract no request until the request is dispatched."""

from __future__ import annotations

import pytest

from routing.router import Router
from routing.values.observation import Completed, FirstToken
from tests.routing.pools import BLOCK, pool, request

FIRST, SHARED = range(200), range(1000, 1020)
LATE_S = 30.0


def with_a_queued_request_given_up(*, forget_blocks: bool) -> Router:
    """Return a router of one engine that still computes its first prompt, after the second one was given up."""
    router = pool(size=1, order="late_last", order_params={"forget_blocks": forget_blocks}, prefill_window_tokens=0)
    router.place(request(1, FIRST), 0.0)
    router.place(request(2, SHARED), 0.0)
    router.place(request(3, range(2000, 2020), at=LATE_S), LATE_S)
    router.observe(FirstToken("request-00000001"), LATE_S)
    router.check()
    return router


@pytest.mark.parametrize(("forget_blocks", "blocks"), [(True, 0), (False, len(SHARED))])
def test_a_new_request_expects_given_up_blocks_only_if_they_are_kept(forget_blocks: bool, blocks: int) -> None:
    router = with_a_queued_request_given_up(forget_blocks=forget_blocks)
    outcome = router.place(request(4, SHARED, at=LATE_S), LATE_S)
    assert outcome.decision.hit_tokens == blocks * BLOCK  # type: ignore[union-attr]


def test_blocks_are_expected_again_once_their_queued_request_is_dispatched() -> None:
    router = with_a_queued_request_given_up(forget_blocks=True)
    dispatches = router.observe(FirstToken("request-00000003"), LATE_S + 2)
    assert [dispatch.decision.decision_id for dispatch in dispatches] == ["request-00000002"]  # type: ignore[union-attr]
    outcome = router.place(request(4, SHARED, at=LATE_S + 2), LATE_S + 2)
    assert outcome.decision.hit_tokens == len(SHARED) * BLOCK  # type: ignore[union-attr]
    for number in (1, 2, 3):
        router.observe(Completed(f"request-{number:08}"), LATE_S + 9)
    router.check()
