"""Choices by blocks in engines' own lower tiers, and by LoRA adapters loaded on engines.

Blocks of queued requests given up by late-last attract no request until the request is dispatched.

Work sent to an engine is counted in blocks, however long the prompts are.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kvstore.index.lower_tiers import CPU, DISK, EXTERNAL
from kvstore.index.prefix_match import LONG
from routing.ledger.fleet_view import FleetView
from routing.policy.policy_document import DispatchLimitDocument
from routing.router import Router
from routing.values.decision import Choice, Decision, Dispatched, Loading
from routing.values.feedback_events import FeedbackEvent
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, FirstToken
from tests.routing.pools import BLOCK, busy, engine_of, engines, pool, request

BLOCKS = range(20)
KEYS = request(1, BLOCKS).keys
ESTIMATING = ["least_cost", "min_ttft", "mooncake", "skywalker", "lbgr"]


def decided(router: Router, asked: InferenceRequest, now: float = 0.0) -> Decision:
    outcome = router.place(asked, now)
    assert isinstance(outcome, Dispatched), outcome
    router.check()
    return outcome.decision


@pytest.mark.parametrize("placement", ESTIMATING)
@pytest.mark.parametrize("holder", ["e-01", "e-03"])
def test_the_engine_with_the_prefix_in_its_cpu_memory_is_preferred(placement: str, holder: str) -> None:
    router = pool(placement, size=3)
    router.fleet.change_tier(holder, CPU, True, KEYS)
    decision = decided(router, request(1, BLOCKS, tokens=21 * BLOCK))
    assert (decision.engine_id, decision.hit_tokens) == (holder, 20 * BLOCK)
    loading = decision.candidates[0].loading
    assert loading is not None
    assert loading.tier_tokens == {CPU: 20 * BLOCK}
    assert 0 < loading.seconds < decision.compute_s
    assert decision.candidates[0].blocks == 0, "what it loads is not in its memory yet"
    without = pool(placement, size=3).view.compute_s(request(1, BLOCKS, tokens=21 * BLOCK), 0, 20 * BLOCK)
    assert decision.compute_s == pytest.approx(without + loading.seconds)


def test_gpu_memory_is_preferred_to_cpu_memory_and_that_to_a_disk() -> None:
    router = pool(size=4)
    router.blocks_stored("e-04", KEYS)
    for engine_id, tier in (("e-01", EXTERNAL), ("e-02", DISK), ("e-03", CPU)):
        router.fleet.change_tier(engine_id, tier, True, KEYS)
    costs = []
    for number, engine_id in enumerate(("e-04", "e-03", "e-02", "e-01")):
        decision = decided(router, request(number, BLOCKS))
        assert decision.engine_id == engine_id
        costs.append(decision.compute_s)
        router.set_engines([engine for engine in engines(4) if engine.engine_id < engine_id], 0.0)
    assert costs == sorted(costs)


@pytest.mark.parametrize("holder", ["e-01", "e-02"])
def test_an_equal_prefix_in_memory_does_not_count_as_cpu_memory(holder: str) -> None:
    router = pool("min_ttft", size=2)
    router.blocks_stored(holder, KEYS)
    router.fleet.change_tier("e-02" if holder == "e-01" else "e-01", CPU, True, KEYS)
    one, other = decided(router, request(1, BLOCKS)).candidates
    assert (one.engine_id, one.loading) == (holder, None)
    assert other.loading is not None
    assert other.compute_s == pytest.approx(one.compute_s + other.loading.seconds)


def test_a_prefix_is_extended_by_the_tiers_of_its_engine() -> None:
    router = pool(size=2)
    router.blocks_stored("e-01", KEYS[:4])
    router.fleet.change_tier("e-01", CPU, True, KEYS[2:10])
    router.fleet.change_tier("e-01", DISK, True, KEYS[10:12])
    router.fleet.change_tier("e-01", CPU, True, KEYS[13:])
    chosen = decided(router, request(1, BLOCKS)).candidates[0]
    assert (chosen.engine_id, chosen.blocks, chosen.hit_tokens) == ("e-01", 4, 12 * BLOCK)
    assert chosen.loading is not None
    assert chosen.loading.tier_tokens == {CPU: 6 * BLOCK, DISK: 2 * BLOCK}


def test_a_tier_learned_to_be_slow_is_avoided_until_that_is_forgotten() -> None:
    router = pool(size=2)
    router.fleet.change_tier("e-02", CPU, True, KEYS)
    costs = router.fleet.loading_costs
    for number in range(40):
        costs.loaded("e-02", {CPU: 10_000}, False, 20.0, 80e-6, float(number))
    decision = decided(router, request(1, BLOCKS), 40.0)
    assert (decision.engine_id, decision.hit_tokens, decision.loading) == ("e-01", 0, None)
    router.observe(Completed("request-00000001"), 41.0)
    costs.loaded("e-02", {DISK: 10}, False, 1.0, 80e-6, 10_000.0)
    assert engine_of(router.place(request(2, BLOCKS), 10_000.0)) == "e-02"


def test_loaded_blocks_are_in_memory_for_the_next_request() -> None:
    router = pool(size=2)
    router.fleet.change_tier("e-02", CPU, True, KEYS)
    decided(router, request(1, BLOCKS))
    again = decided(router, request(2, BLOCKS))
    assert (again.engine_id, again.loading) == ("e-02", None)
    assert again.candidates[0].blocks == len(KEYS)


def test_a_queued_request_is_dispatched_with_its_loads_at_that_time() -> None:
    router = pool(size=1, dispatch_limit=DispatchLimitDocument(), prefill_window_tokens=1, lookahead_s=0)
    router.fleet.change_tier("e-01", CPU, True, KEYS[:10])
    router.place(request(1, [90, 91]), 0.0)
    router.place(request(2, BLOCKS), 0.0)
    router.fleet.change_tier("e-01", CPU, False, KEYS[5:10])
    outcomes = router.observe(FirstToken("request-00000001"), 1.0)
    dispatched = [outcome.decision for outcome in outcomes if isinstance(outcome, Dispatched)]
    assert [item.hit_tokens for item in dispatched] == [5 * BLOCK]
    assert dispatched[0].loading is not None
    assert dispatched[0].loading.tier_tokens == {CPU: 5 * BLOCK}
    router.check()


def test_tiers_of_a_removed_or_cleared_engine_are_forgotten() -> None:
    router = pool(size=2)
    router.fleet.change_tier("e-02", CPU, True, KEYS)
    router.blocks_cleared("e-02")
    assert decided(router, request(1, BLOCKS)).hit_tokens == 0
    router = pool(size=2)
    router.fleet.change_tier("e-02", CPU, True, KEYS)
    router.set_engines([replace(engine, incarnation=2) for engine in engines(2)], 0.0)
    assert decided(router, request(1, BLOCKS)).hit_tokens == 0
    router.fleet.change_tier("e-09", CPU, True, KEYS)
    assert router.index.tiers.targets == 0


def test_a_shadow_uses_the_tiers_too() -> None:
    router = pool("round_robin", size=3)
    router.fleet.change_tier("e-03", CPU, True, KEYS)
    twin = router.view.twin(router.view._prefill_cost)
    assert twin.match(request(1, BLOCKS)).blocks(2) == len(KEYS)
    assert twin.compute_s(request(1, BLOCKS), 2, 20 * BLOCK) == router.view.compute_s(request(1, BLOCKS), 2, 20 * BLOCK)


class Narrow:
    """Match one engine alone, as the shadow of a ring placement does."""

    def placed(self, request: InferenceRequest, choice: Choice, view: FleetView, now: float) -> None:
        view.match_among(request, 1)

    def learn(self, event: FeedbackEvent) -> None:
        pass


def test_a_shadow_that_matches_fewer_engines_changes_no_live_decision() -> None:
    decisions = []
    for observer in (None, Narrow()):
        router = pool(size=3)
        router.accompany(observer)
        router.fleet.change_tier("e-03", CPU, True, KEYS)
        decisions.append(decided(router, request(1, BLOCKS)))
        assert router.in_flight._targets_of, "what is loaded is on its way to the engine's memory"
    assert decisions[0] == decisions[1]
    assert decisions[1].loading is not None


def with_adapter(number: int, adapter: str, blocks: range = BLOCKS) -> InferenceRequest:
    return replace(request(number, blocks), adapter=adapter)


def test_a_new_prompt_goes_to_the_engine_that_has_its_adapter_loaded() -> None:
    router = pool(size=4)
    router.fleet.note_adapters("e-03", ["sql"])
    for number in range(3):
        asked = with_adapter(number, "sql", range(100 * number, 100 * number + 4))
        decision = decided(router, asked)
        assert (decision.engine_id, decision.loading) == ("e-03", None)
        router.observe(Completed(asked.request_id), 0.0)
    other = decided(router, with_adapter(9, "poems", range(900, 904)))
    assert other.loading == Loading(router.fleet.loading_costs.adapter_s("e-01"), {}, "poems")
    router.observe(Completed("request-00000009"), 0.0)
    assert decided(router, with_adapter(10, "poems", range(950, 954))).engine_id == other.engine_id


def test_a_loaded_adapter_is_worth_only_as_much_waiting_as_its_load_takes() -> None:
    router = pool(size=2)
    router.fleet.note_adapters("e-02", ["sql"])
    busy(router, "e-02", wait_s=1.0)
    decision = decided(router, with_adapter(1, "sql"))
    assert decision.engine_id == "e-01"
    assert decision.loading is not None
    assert decision.loading.adapter == "sql"


def test_an_engine_over_its_adapter_limit_drops_the_longest_unused_one() -> None:
    router = pool(size=1)
    router.fleet.note_adapters("e-01", ["a", "b"], 2)
    router.fleet.note_adapters("e-01", ["a"])
    router.fleet.note_adapters("e-01", ["c"])
    adapters = router.fleet.own_loads().adapters
    assert [name for name in "abc" if adapters.has(0, name)] == ["a", "c"]
    assert (adapters.targets("c"), adapters.targets("b")) == (1, 0)
    router.set_engines([replace(engine, incarnation=2) for engine in engines(1)], 0.0)
    assert adapters.targets("c") == 0


def test_fleets_without_tiers_and_adapters_keep_their_fast_path() -> None:
    router = pool(size=4)
    router.blocks_stored("e-01", KEYS)
    decided(router, request(1, BLOCKS))
    router.fleet.change_tier("e-01", CPU, False, KEYS)
    assert router.view.own is None
    assert router.view.roster.alike


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


@pytest.mark.parametrize("blocks", [5, LONG - 1, LONG, 3 * LONG + 7])
@pytest.mark.parametrize("held", [0, 3])
def test_each_received_block_is_counted_once(blocks: int, held: int) -> None:
    router, asked = pool(size=1), request(1, range(blocks))
    router.blocks_stored("e-01", asked.keys[:held])
    router.place(asked, 0.0, hold=False)
    assert router.view.load.sent_blocks[0] == blocks - held


def test_a_partial_last_block_is_not_counted() -> None:
    router = pool(size=1)
    router.place(request(1, range(LONG), tokens=LONG * BLOCK + 100), 0.0, hold=False)
    assert router.view.load.sent_blocks[0] == LONG
