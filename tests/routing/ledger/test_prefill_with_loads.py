from typing import Any

import msgspec
import pytest

from routing.ledger.fleet_view import EngineFacts
from routing.ledger.node_holdings import NodeHoldings
from routing.ledger.node_loads import NodeLoads
from routing.placements.least_cost import LeastCost
from routing.placements.mooncake import Mooncake
from routing.placements.placement import Placement
from routing.policy.admission_document import AdmissionDocument
from routing.router import Router
from routing.trials.shadow import ShadowPolicy
from routing.values import reasons
from routing.values.decision import Choice, Dispatched, Queued
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import Fetch
from routing.values.observation import Completed, Failed, FirstToken
from simulator.baselines.textbook_rules import MinTtft
from tests.routing import pools
from tests.routing.pools import BLOCK, busy, choice_of, request

LONG = range(20)
BLOCK_BYTES = 512 * 1024
COUNTING: list[Placement] = [Mooncake(), LeastCost()]


def with_nodes(router: Router, **held: int) -> NodeLoads:
    """Assign nodes a and b to the engines in turn, which hold this many leading blocks of the LONG prompt."""
    holdings = NodeHoldings()
    loads = NodeLoads(holdings)
    for name in ("a", "b"):
        holdings.join(name)
        holdings.stored(name, request(1, LONG).keys[: held.get(name, 0)])
        holdings.complete(name)
    homes = {f"e-{number:02}": "ab"[number % 2 == 0] for number in range(1, 9)}
    loads.set_nodes(homes, {"a": BLOCK_BYTES, "b": BLOCK_BYTES})
    router.follow_nodes(loads)
    return loads


def slow(loads: NodeLoads, home: str, node: str, s_per_byte: float) -> None:
    """Teach the loads that a link is slow."""
    engine_id = next(engine_id for engine_id, own in loads.homes.items() if own == home)
    for _ in range(300):
        loads.loaded(engine_id, node, 10, 10 * BLOCK_BYTES, 10 * BLOCK_BYTES * s_per_byte, 0.0)


def fetch_of(choice: Choice) -> Fetch:
    assert choice.fetch is not None
    return choice.fetch


@pytest.mark.parametrize("placement", COUNTING)
def test_an_idle_engine_loads_blocks_that_its_node_holds(placement: Placement) -> None:
    router, asked = pools.pool(size=1), request(1, LONG)
    computed_s = choice_of(router, placement, asked).candidates[0].compute_s
    loads = with_nodes(router, a=20)
    choice = choice_of(router, placement, asked)
    fetch, best = fetch_of(choice), choice.candidates[0]
    assert choice.reason == reasons.LOAD
    assert (fetch.node, fetch.source_engine_id, fetch.blocks) == ("a", "", 20)
    assert fetch.seconds == pytest.approx(loads.seconds("a", "a", 20))
    assert (best.hit_tokens, best.blocks) == (20 * BLOCK, 0)
    assert best.compute_s == pytest.approx(fetch.seconds + router.view.compute_s(asked, 0, 20 * BLOCK))
    assert best.compute_s < computed_s


@pytest.mark.parametrize("placement", COUNTING)
def test_blocks_that_cost_more_to_load_than_to_compute_are_computed(placement: Placement) -> None:
    router, asked = pools.pool(size=1), request(1, LONG)
    plain = choice_of(router, placement, asked)
    loads = with_nodes(router, b=20)
    slow(loads, "a", "b", 1e-6)
    choice = choice_of(router, placement, asked)
    assert msgspec.structs.replace(choice, loads=None) == plain


@pytest.mark.parametrize("placement", COUNTING)
def test_blocks_on_the_local_node_are_worth_more_than_on_a_remote_one(placement: Placement) -> None:
    router, asked = pools.pool(size=2), request(1, LONG)
    with_nodes(router, b=20)
    choice = choice_of(router, placement, asked)
    assert router.view.roster.engine_ids[choice.target] == "e-02"
    assert fetch_of(choice).node == "b"
    busy(router, "e-02", wait_s=5.0)
    choice = choice_of(router, placement, asked)
    assert (router.view.roster.engine_ids[choice.target], fetch_of(choice).node) == ("e-01", "b")


@pytest.mark.parametrize("placement", COUNTING)
def test_an_engine_that_holds_the_prompt_loads_nothing(placement: Placement) -> None:
    router, asked = pools.pool(size=2), request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    with_nodes(router, a=20, b=20)
    choice = choice_of(router, placement, asked)
    assert (choice.candidates[0].engine_id, choice.fetch) == ("e-01", None)


@pytest.mark.parametrize("placement", COUNTING)
def test_engines_without_a_node_compute(placement: Placement) -> None:
    router, asked = pools.pool(size=2), request(1, LONG)
    loads = with_nodes(router, a=20, b=20)
    loads.set_nodes({"e-02": "b"}, {})
    choice = choice_of(router, placement, asked)
    assert choice.candidates[0].engine_id == "e-02"
    busy(router, "e-02", wait_s=60.0)
    choice = choice_of(router, placement, asked)
    assert (choice.candidates[0].engine_id, choice.fetch) == ("e-01", None)


def test_mooncake_ignores_a_load_that_extends_the_prefix_only_a_little() -> None:
    router, asked = pools.pool(size=1), request(1, LONG)
    router.blocks_stored("e-01", asked.keys[:17])
    with_nodes(router, a=20)
    assert choice_of(router, Mooncake(), asked).fetch is None
    assert fetch_of(choice_of(router, Mooncake(threshold=1.0), asked)).blocks == 20


def test_the_trust_in_an_engines_index_does_not_apply_to_its_node() -> None:
    router, asked = pools.pool(size=1), request(1, LONG)
    router.set_engines([EngineFacts("e-01", 1, accepts=True, trust=0.0)], 0.0)
    router.blocks_stored("e-01", asked.keys[:10])
    with_nodes(router, a=20)
    best = choice_of(router, Mooncake(), asked).candidates[0]
    assert (best.hit_tokens, best.blocks) == (20 * BLOCK, 10)


def test_without_holders_every_placement_chooses_as_without_nodes() -> None:
    router, asked = pools.pool(size=3), request(1, LONG)
    router.blocks_stored("e-02", asked.keys[:5])
    before = [choice_of(router, item, asked) for item in (*COUNTING, MinTtft())]
    with_nodes(router)
    after = [choice_of(router, item, asked) for item in (*COUNTING, MinTtft())]
    assert [msgspec.structs.replace(choice, loads=None) for choice in after] == before


def test_shadow_views_and_narrowed_views_count_the_same_loads() -> None:
    router, asked = pools.pool("mooncake", size=3), request(1, LONG)
    with_nodes(router, a=20)
    shadow = ShadowPolicy(router.policy, router.view)
    live = choice_of(router, Mooncake(), asked)
    assert live.fetch is not None
    compared = shadow.compare(asked, live, router.view, 0.0)
    assert compared is not None
    assert compared.shadow == compared.live
    assert router.view.without(frozenset({"e-01"})).nodes is router.view.nodes


def queued(placement: str, **held: Any) -> tuple[Router, NodeLoads, InferenceRequest]:
    """Return a pool of one engine at its limit with one queued request."""
    router, asked = pools.pool(placement, size=1, prefill_window_tokens=1), request(9, LONG)
    loads = with_nodes(router, **held)
    router.place(request(1, range(100, 120)), 0.0, hold=False)
    assert isinstance(router.place(asked, 0.1), Queued)
    return router, loads, asked


@pytest.mark.parametrize("placement", ["mooncake", "least_cost"])
def test_a_dispatched_request_loads_blocks_that_its_node_currently_holds(placement: str) -> None:
    router, loads, asked = queued(placement)
    loads.holdings.stored("a", asked.keys[:12])
    dispatched = router.observe(FirstToken("request-00000001"), 1.0)[0]
    assert isinstance(dispatched, Dispatched)
    decision = dispatched.decision
    assert decision.fetch is not None
    assert (decision.fetch.node, decision.fetch.blocks, decision.hit_tokens) == ("a", 12, 12 * BLOCK)
    rest_s = router.view.compute_s(asked, 0, 12 * BLOCK)
    assert decision.compute_s == pytest.approx(decision.fetch.seconds + rest_s)
    router.check()


@pytest.mark.parametrize(("changed", "matches"), [(False, 1), (True, 2)])
def test_what_can_be_loaded_is_computed_once_and_again_after_a_change(
    changed: bool, matches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cost, admission, advisory, queue and dispatch use the same options."""
    settings = {"admission": AdmissionDocument(reject_infeasible=True), "advisories": "gated"}
    router = pools.pool("least_cost", size=1, prefill_window_tokens=1, **settings)
    loads, asked = with_nodes(router, a=20, b=20), msgspec.structs.replace(request(9, LONG), session_id="s")
    router.place(request(1, range(100, 120)), 0.0, hold=False)
    assert router.advise(asked, "", 10.0, 0.0, {}) is not None
    counted: list[object] = []
    match = loads.holdings.match
    monkeypatch.setattr(loads.holdings, "match", lambda keys: counted.append(keys) or match(keys))
    queued = router.place(asked, 0.1)
    assert isinstance(queued, Queued)
    assert queued.loads is not None
    assert queued.decision.reason == reasons.ADVISED
    if changed:
        loads.holdings.stored("a", [7])
    router.tick(0.2)
    dispatched = router.observe(FirstToken("request-00000001"), 1.0)[0]
    assert isinstance(dispatched, Dispatched)
    assert dispatched.decision.fetch is not None
    assert (dispatched.decision.fetch.node, dispatched.holders) == ("a", ("a", "b"))
    assert len(counted) == matches


def test_a_request_dispatched_at_once_names_the_decided_holder_first() -> None:
    router, asked = pools.pool(size=2), request(1, LONG)
    with_nodes(router, a=10, b=20)
    outcome = router.place(asked, 0.0)
    assert isinstance(outcome, Dispatched)
    assert outcome.decision.fetch is not None
    assert (outcome.decision.fetch.node, outcome.decision.fetch.blocks, outcome.holders) == ("b", 20, ("b",))


def test_a_dispatched_request_expects_no_blocks_of_a_removed_node() -> None:
    router, loads, _ = queued("mooncake", a=20)
    loads.holdings.leave("a")
    dispatched = router.observe(FirstToken("request-00000001"), 1.0)[0]
    assert isinstance(dispatched, Dispatched)
    assert (dispatched.decision.fetch, dispatched.decision.hit_tokens) == (None, 0)
    router.follow_nodes(None)
    router.check()


def test_a_placement_that_ignores_loads_orders_none() -> None:
    router, _, _ = queued("min_ttft", a=20)
    dispatched = router.observe(FirstToken("request-00000001"), 1.0)[0]
    assert isinstance(dispatched, Dispatched)
    assert dispatched.decision.fetch is None


def test_a_dispatched_load_delays_others_until_its_first_token() -> None:
    router = pools.pool(size=1)
    loads = with_nodes(router, a=20)
    slow(loads, "a", "a", 1e-9)
    alone_s = loads.seconds("a", "a", 20)
    assert isinstance(router.place(request(1, LONG), 0.0), Dispatched)
    assert loads.seconds("a", "a", 20) == pytest.approx(2 * alone_s, rel=0.1)
    router.check()
    router.observe(FirstToken("request-00000001"), 0.5)
    assert loads.seconds("a", "a", 20) == alone_s


def test_a_failed_request_delays_no_load() -> None:
    router = pools.pool(size=1)
    loads = with_nodes(router, a=20)
    slow(loads, "a", "a", 1e-9)
    alone_s = loads.seconds("a", "a", 20)
    assert isinstance(router.place(request(1, LONG), 0.0), Dispatched)
    router.observe(Failed("request-00000001"), 0.5)
    assert loads.seconds("a", "a", 20) == alone_s


def test_a_link_whose_prior_is_slower_than_computing_is_tried_once_and_then_measured() -> None:
    router = pools.pool(size=1)
    loads = with_nodes(router, a=20)
    # At the prior, large blocks take four times as long to load as to compute.
    computed_s = choice_of(router, LeastCost(), request(1, range(100, 120))).candidates[0].compute_s
    loads.set_nodes(dict(loads.homes), {"a": int(4 * computed_s / 20 * 2e9)})
    first = router.place(request(1, LONG), 0.0)
    second = router.place(request(2, LONG), 0.0)
    assert isinstance(first, Dispatched)
    assert first.decision.fetch is not None
    assert first.decision.compute_s == pytest.approx(computed_s, rel=0.01), "no reason to avoid the engine"
    assert not isinstance(second, Dispatched) or second.decision.fetch is None
    loads.loaded("e-01", "a", 20, int(4 * computed_s * 2e9), 0.5 * computed_s, 1.0, 0, "request-00000001")
    router.observe(Completed("request-00000001"), 2.0)
    router.observe(Completed("request-00000002"), 2.0)
    for _ in range(3):
        loads.loaded("e-01", "a", 20, int(4 * computed_s * 2e9), 0.5 * computed_s, 3.0)
    assert fetch_of(choice_of(router, LeastCost(), request(3, LONG))).node == "a"


def test_a_load_that_would_take_far_longer_than_computing_is_not_tried() -> None:
    router = pools.pool(size=1)
    loads = with_nodes(router, a=20)
    loads.set_nodes(dict(loads.homes), {"a": 1 << 34})
    assert choice_of(router, LeastCost(), request(1, LONG)).fetch is None
