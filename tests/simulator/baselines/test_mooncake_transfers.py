from typing import Any

import pytest

from routing.cost.cost_model import PrefillCost
from routing.router import Router
from routing.values import reasons
from routing.values.decision import Dispatched, Queued
from routing.values.inference_request import InferenceRequest
from routing.values.observation import FirstToken
from simulator.baselines.mooncake_transfers import MooncakeTransfers
from tests.routing import pools
from tests.routing.pools import BLOCK, busy, choice_of, request

LONG = range(20)
BLOCK_S = 512 * 57_344 * 8 / 100e9
"""One block's transfer: 2.35 ms."""


def pool(placement: str = "least_cost", **settings: Any) -> Router:
    """Return a pool whose engines can transfer blocks."""
    router = pools.pool(placement, **settings)
    router.view.sending_until = {}
    return router


def test_narrowed_and_shadow_views_keep_transfers_possible() -> None:
    router = pool(size=3)
    assert router.view.without(frozenset({"e-01"})).sending_until is router.view.sending_until
    assert router.view.twin(PrefillCost.of(router.policy.prefill_cost)).sending_until is router.view.sending_until


def test_an_idle_engine_fetches_blocks_that_a_busy_one_holds() -> None:
    router, asked = pool(size=2), request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    busy(router, "e-01", wait_s=0.5)
    choice = choice_of(router, MooncakeTransfers(), asked)
    assert (router.view.roster.engine_ids[choice.target], choice.reason) == ("e-02", reasons.FETCH)
    assert choice.fetch is not None
    assert (choice.fetch.source_engine_id, choice.fetch.blocks) == ("e-01", 20)
    assert choice.fetch.seconds == pytest.approx(20 * BLOCK_S)
    best = choice.candidates[0]
    assert best.compute_s == pytest.approx(20 * BLOCK_S + router.view.compute_s(asked, 1, 20 * BLOCK))
    assert (best.hit_tokens, best.blocks) == (20 * BLOCK, 0)


def test_a_short_queue_is_better_than_a_transfer() -> None:
    router, asked = pool(size=2), request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    busy(router, "e-01", wait_s=0.04)
    choice = choice_of(router, MooncakeTransfers(), asked)
    assert (choice.target, choice.reason, choice.fetch) == (0, reasons.LEAST_TTFT, None)


@pytest.mark.parametrize(("threshold", "fetched"), [(1.2, None), (1.0, 20)])
def test_a_slightly_longer_match_is_not_worth_a_fetch(threshold: float, fetched: int | None) -> None:
    router, asked = pool(size=2), request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    router.blocks_stored("e-02", asked.keys[:17])
    busy(router, "e-01", wait_s=2.0)
    choice = choice_of(router, MooncakeTransfers(threshold=threshold), asked)
    assert choice.target == 1
    assert (choice.fetch.blocks if choice.fetch is not None else None) == fetched


def test_blocks_in_flight_count_for_the_engine_but_cannot_be_fetched() -> None:
    router = pool("mooncake", size=2)
    first = router.place(request(1, LONG), 0.0)
    assert isinstance(first, Dispatched)
    choice = choice_of(router, MooncakeTransfers(), request(2, LONG))
    assert choice.fetch is None


def waiting_fetch() -> tuple[Router, InferenceRequest]:
    router, asked = pool("mooncake", size=2, prefill_window_tokens=1), request(9, LONG)
    router.blocks_stored("e-01", asked.keys)
    for number, engine_id in ((1, "e-01"), (2, "e-02")):
        work = request(number, range(100 * number, 100 * number + 20))
        router.place(work, 0.0, hold=False, excluded=frozenset({"e-01", "e-02"}) - {engine_id})
    return router, asked


def test_a_granted_request_fetches_blocks_that_the_source_currently_holds() -> None:
    router, asked = waiting_fetch()
    busy(router, "e-01", wait_s=3.0)
    queued = router.place(asked, 0.1)
    assert isinstance(queued, Queued)
    assert queued.decision.fetch is not None
    router.blocks_removed("e-01", asked.keys[12:])
    dispatches = router.observe(FirstToken("request-00000002"), 1.0)
    assert isinstance(dispatches[0], Dispatched)
    fetch = dispatches[0].decision.fetch
    assert fetch is not None
    assert (fetch.source_engine_id, fetch.blocks) == ("e-01", 12)
    assert fetch.seconds == pytest.approx(12 * BLOCK_S)
    assert dispatches[0].decision.hit_tokens == 12 * BLOCK
    router.check()


def test_a_granted_request_fetches_nothing_from_a_removed_engine() -> None:
    router, asked = waiting_fetch()
    busy(router, "e-01", wait_s=3.0)
    assert isinstance(router.place(asked, 0.1), Queued)
    router.blocks_cleared("e-01")
    dispatches = router.observe(FirstToken("request-00000002"), 1.0)
    assert isinstance(dispatches[0], Dispatched)
    assert (dispatches[0].decision.fetch, dispatches[0].decision.hit_tokens) == (None, 0)
    router.check()


def test_a_busy_link_counts_and_a_free_holder_is_preferred() -> None:
    router = pool("mooncake", size=3, params={"congestion": True})
    asked = request(1, range(40))
    for engine in ("e-01", "e-02"):
        router.blocks_stored(engine, asked.keys)
        busy(router, engine, wait_s=9.0)
    choice = choice_of(router, MooncakeTransfers(congestion=True), asked)
    assert choice.fetch is not None
    idle_s = choice.candidates[0].compute_s
    router.view.sending_until = {choice.fetch.source_engine_id: 0.1}
    other = choice_of(router, MooncakeTransfers(congestion=True), asked)
    assert other.fetch is not None
    assert other.fetch.source_engine_id != choice.fetch.source_engine_id
    router.view.sending_until = dict.fromkeys(router.view.roster.engine_ids, 0.1)
    late = choice_of(router, MooncakeTransfers(congestion=True), asked)
    assert late.candidates[0].compute_s == pytest.approx(idle_s + 0.1)
