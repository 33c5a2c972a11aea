"""Requests go to the engine whose cache groups can all serve the longest prefix, not to the one with most blocks."""

import msgspec
import pytest

from kvstore.index.cache_tails import STATE, WINDOW, Tail
from routing.dispatch.cold_start import UNBOUND_WAIT_S
from routing.policy.fairness_document import FairnessDocument
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.registry import PolicyStageError
from routing.router import Router
from routing.values.decision import Dispatched, Queued, Rejected
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, Failed, FirstToken
from tests.routing.pools import BLOCK, engine_of, engines, pool, request

LONG = range(20)
"""20 blocks, 10,240 tokens: about 0.93 s of prefill."""


def test_a_prompt_goes_to_the_engine_with_its_prefix() -> None:
    router = pool(size=8)
    asked = request(1, LONG)
    router.blocks_stored("e-05", asked.keys)
    outcome = router.place(asked, 0.0)
    assert engine_of(outcome) == "e-05"
    assert isinstance(outcome, Dispatched)
    assert outcome.decision.hit_tokens == 20 * BLOCK
    assert outcome.decision.decision_id == asked.request_id


def test_a_burst_with_a_new_prefix_follows_its_first_request() -> None:
    router = pool(size=4)
    first = router.place(request(1, LONG), 0.0)
    second = router.place(request(2, LONG), 0.0)
    assert isinstance(first, Dispatched)
    assert second.decision.engine_id == first.decision.engine_id  # type: ignore[union-attr]


def test_idle_engines_share_new_prompts() -> None:
    router = pool(size=4)
    chosen = set()
    for number in range(40):
        outcome = router.place(request(number, [100 + number]), float(number))
        chosen.add(engine_of(outcome))
        router.observe(FirstToken(f"request-{number:08}"), number + 0.5)
        router.observe(Completed(f"request-{number:08}"), number + 0.6)
    assert len(chosen) == 4


def test_a_second_prefill_waits_and_is_dispatched_at_the_first_token() -> None:
    router = pool(size=1)
    router.place(request(1, LONG), 0.0)
    second = router.place(request(2, range(100, 120)), 0.1)
    assert isinstance(second, Queued)
    assert router.observe(Completed("unknown"), 0.2) == []
    dispatches = router.observe(FirstToken("request-00000001"), 0.8)
    assert [dispatch.decision.decision_id for dispatch in dispatches if isinstance(dispatch, Dispatched)] == [
        "request-00000002"
    ]
    assert dispatches[0].decision.queued_s == pytest.approx(0.8)  # type: ignore[union-attr]
    router.check()


def test_the_lookahead_dispatches_just_before_the_engine_is_free() -> None:
    router = pool(size=1, lookahead_s=0.05)
    first = router.place(request(1, LONG), 0.0)
    router.place(request(2, LONG), 0.0)
    free_at = first.decision.compute_s  # type: ignore[union-attr]
    wake = router.next_wake(0.0)
    assert wake == pytest.approx(free_at - 0.05)
    assert router.tick(free_at - 0.06) == []
    assert len(router.tick(free_at - 0.04)) == 1


def test_small_prompts_share_an_engine_within_the_token_budget() -> None:
    router = pool(size=1, prefill_window_tokens=1024)
    outcomes = [router.place(request(number, [number]), 0.0) for number in range(3)]
    assert [type(outcome).__name__ for outcome in outcomes] == ["Dispatched", "Dispatched", "Queued"]


def test_without_hold_an_engine_is_chosen_immediately() -> None:
    router = pool(size=1)
    for number in range(5):
        assert isinstance(router.place(request(number, LONG), 0.0, hold=False), Dispatched)
    assert router.loads(0.0)[0].running == 5


def test_an_id_can_be_used_once() -> None:
    router = pool()
    router.place(request(1), 0.0)
    with pytest.raises(ValueError, match="already here"):
        router.place(request(1), 0.0)


def test_an_excluded_engine_is_chosen_only_if_no_other_accepts_work() -> None:
    router = pool(size=2)
    asked = request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    assert engine_of(router.place(asked, 0.0, excluded=frozenset({"e-01"}))) == "e-02"
    everywhere = frozenset({"e-01", "e-02"})
    assert engine_of(router.place(request(2, LONG), 0.0, excluded=everywhere)) in everywhere


def test_a_full_queue_rejects_with_a_retry_time() -> None:
    router = pool(size=1, queue_limit=1)
    router.place(request(1, LONG), 0.0)
    router.place(request(2, LONG), 0.0)
    rejected = router.place(request(3, LONG), 0.0)
    assert isinstance(rejected, Rejected)
    assert (rejected.code, rejected.retry_after_s >= 1.0) == ("queue_full", True)


def test_a_queued_request_that_waits_too_long_is_rejected() -> None:
    router = pool(size=1, max_wait_s=2.0)
    router.place(request(1, LONG), 0.0, hold=False)
    for number in range(2, 9):
        router.place(request(number, range(number * 20, number * 20 + 20)), 0.0)
    expired = [item for item in router.tick(2.0) if isinstance(item, Rejected)]
    assert expired
    assert {item.code for item in expired} == {"wait_expired"}
    router.check()


def test_queued_requests_of_a_non_accepting_engine_move_and_running_work_stays() -> None:
    router = pool(size=2)
    asked = request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    router.place(asked, 0.0)
    waiting = [request(number, LONG) for number in (2, 3)]
    assert all(isinstance(router.place(item, 0.0), Dispatched | Queued) for item in waiting)
    facts = engines(2)
    facts[0] = msgspec.structs.replace(facts[0], accepts=False)
    router.set_engines(facts, 0.1)
    loads = router.loads(0.1)
    assert (loads[0].running >= 1, loads[0].bound) == (True, 0)
    assert sum(load.running + load.bound for load in loads) == 3
    router.check()


def test_a_new_incarnation_starts_empty() -> None:
    router = pool(size=2)
    asked = request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    router.place(asked, 0.0)
    facts = engines(2)
    facts[0] = msgspec.structs.replace(facts[0], incarnation=2)
    router.set_engines(facts, 1.0)
    assert router.loads(1.0)[0].running == 0
    assert router.index.match(asked.keys, -1 & 0xFF).longest == 0
    assert router.observe(Completed(asked.request_id), 2.0) == []
    router.check()


def test_requests_stay_unbound_without_an_accepting_engine_and_go_when_one_accepts() -> None:
    router = pool(size=0)
    assert isinstance(router.place(request(1), 0.0), Queued)
    assert isinstance(router.place(request(2), 0.0, hold=False), Rejected)
    dispatched = router.set_engines(engines(1), 1.5)
    assert [engine_of(item) for item in dispatched] == ["e-01"]
    assert dispatched[0].decision.queued_s == pytest.approx(1.5)  # type: ignore[union-attr]


def test_unbound_requests_are_rejected_after_a_timeout() -> None:
    router = pool(size=0)
    router.place(request(1), 0.0)
    assert router.tick(UNBOUND_WAIT_S - 0.1) == []
    rejected = router.tick(UNBOUND_WAIT_S)
    assert [item.code for item in rejected if isinstance(item, Rejected)] == ["no_engine"]


def test_a_reservation_that_is_never_completed_expires() -> None:
    router = pool(size=1, reservation_ttl_s=30.0)
    router.place(request(1), 0.0, hold=False)
    router.tick(29.0)
    assert router.loads(29.0)[0].running == 1
    router.tick(30.0)
    assert router.loads(30.0)[0].running == 0
    router.check()


def test_releasing_twice_is_harmless() -> None:
    router = pool(size=1)
    router.place(request(1), 0.0)
    for _ in range(2):
        router.observe(Failed("request-00000001"), 1.0)
    assert router.loads(1.0)[0].running == 0
    router.check()


def test_a_stuck_prefill_keeps_its_engine_busy() -> None:
    router = pool(size=2)
    asked = request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    router.place(request(2, range(50, 70)), 0.0, hold=False)
    busy = next(load for load in router.loads(60.0) if load.running)
    assert busy.in_flight_s > 10.0


def test_an_invalid_policy_changes_nothing() -> None:
    router = pool()
    with pytest.raises(PolicyStageError, match="unknown"):
        router.set_policy(RoutingPolicy(placement=Stage(name="nope")), 2, 0.0)
    outcome = router.place(request(1), 0.0)
    assert outcome.decision.policy_version == 1  # type: ignore[union-attr]


def test_every_later_decision_names_the_new_policy_version() -> None:
    router = pool()
    router.set_policy(RoutingPolicy(placement=Stage(name="round_robin")), 7, 0.0)
    decision = router.place(request(1), 0.0).decision  # type: ignore[union-attr]
    assert (decision.policy_version, decision.placement) == (7, "round_robin")


def test_late_first_tokens_do_not_lower_the_wait_estimate_of_an_engine() -> None:
    router = pool(size=1, order="late_last", prefill_window_tokens=1, lookahead_s=0.0)
    for number in range(1, 21):
        begins = 10.0 * number
        router.place(request(number, [1000 + number]), begins)
        router.observe(FirstToken(f"request-{number:08}"), begins + 1.0)
    router.place(request(50, LONG, at=300.0), 300.0)
    router.place(request(51, range(100, 101), at=300.0, slo=1.5), 300.0)
    router.place(request(52, range(200, 201), at=300.0, slo=4.0), 300.0)
    # By cost alone the older one would be on time after 0.98 s; this engine has lately needed 0.9 s more.
    dispatches = router.observe(FirstToken("request-00000050"), 300.9)
    assert dispatches[0].decision.decision_id == "request-00000052"  # type: ignore[union-attr]
    router.check()


def test_the_estimated_wait_of_a_new_request_ignores_infeasible_queued_requests() -> None:
    router = pool(size=1, order="late_last", prefill_window_tokens=1, lookahead_s=0.0)
    router.place(request(1, LONG), 0.0)
    for number in range(2, 9):
        router.place(request(number, range(100 * number, 100 * number + 20), slo=1.0), 0.0)
    assert router.view.wait_s(0, 0.0) > 6.0
    router.observe(FirstToken("request-00000001"), 0.9)
    # Seven requests of 0.93 s: one is dispatched although it is late, the six behind it are SLO-infeasible too.
    assert router.view.wait_s(0, 0.9) == pytest.approx(0.934, abs=0.01)
    assert router.loads(0.9)[0].bound == 6
    router.observe(Failed("request-00000005"), 1.0)
    router.check()


def _from(number: int, tenant: str) -> InferenceRequest:
    return msgspec.structs.replace(request(number, range(number * 100, number * 100 + 20)), tenant_id=tenant)


def test_a_full_queue_still_accepts_a_tenant_below_its_share() -> None:
    router = pool(size=1, queue_limit=4, fairness=FairnessDocument(enabled=True))
    waits = [isinstance(router.place(_from(number, "b"), 0.0), Queued) for number in range(1, 7)]
    assert waits == [False, True, True, True, True, False]
    waits = [isinstance(router.place(_from(number, "a"), 0.0), Queued) for number in range(7, 10)]
    assert waits == [True, True, False]
    assert isinstance(router.place(_from(10, "b"), 0.0), Rejected)
    router.check()
    (dispatched,) = router.observe(FirstToken("request-00000001"), 1.0)
    (next_granted,) = router.observe(FirstToken(dispatched.decision.decision_id), 2.0)  # type: ignore[union-attr]
    assert {dispatched.decision.decision_id, next_granted.decision.decision_id} == {  # type: ignore[union-attr]
        "request-00000002",
        "request-00000007",
    }


def test_tenants_are_accepted_beyond_a_full_queue_up_to_a_limit() -> None:
    router = pool(size=1, queue_limit=4, fairness=FairnessDocument(enabled=True))
    for number in range(1, 40):
        router.place(_from(number, f"tenant-{number // 6}"), 0.0)
    assert len(router.waiting) <= 8


def test_without_fairness_a_full_queue_is_full_for_all_tenants() -> None:
    router = pool(size=1, queue_limit=2)
    for number in range(1, 4):
        router.place(_from(number, "b"), 0.0)
    assert isinstance(router.place(_from(4, "a"), 0.0), Rejected)


BLOCKS = range(20)
KEYS = request(1, BLOCKS).keys


def hybrid() -> Router:
    """Return a router of two engines: one holds all blocks but no states, the other a servable half of the prompt."""
    router = pool(size=2)
    for name, held, states in (("e-01", KEYS, KEYS[2:3]), ("e-02", KEYS[:10], KEYS[9:10])):
        router.fleet.declare_tail(name, Tail(window_blocks=2, states=True))
        router.blocks_stored(name, held)
        router.fleet.change_tail(name, WINDOW, True, held)
        router.fleet.change_tail(name, STATE, True, states)
    return router


def test_a_servable_half_beats_blocks_whose_state_is_gone() -> None:
    router = hybrid()
    outcome = router.place(request(1, BLOCKS), 0.0)
    assert engine_of(outcome) == "e-02"
    assert outcome.decision.hit_tokens == 10 * BLOCK  # type: ignore[union-attr]
    router.index.check()


def test_an_evicted_window_block_shortens_the_hit() -> None:
    router = hybrid()
    router.fleet.change_tail("e-02", WINDOW, False, KEYS[8:9])
    outcome = router.place(request(1, BLOCKS), 0.0)
    assert engine_of(outcome) == "e-01"
    assert outcome.decision.hit_tokens == 3 * BLOCK  # type: ignore[union-attr]


def test_a_prompt_in_flight_is_a_hit_for_the_next_one() -> None:
    router = hybrid()
    first = engine_of(router.place(request(1, BLOCKS), 0.0))
    again = router.place(request(2, BLOCKS), 0.0)
    assert again.decision.engine_id == first  # type: ignore[union-attr]
    assert again.decision.hit_tokens == len(BLOCKS) * BLOCK  # type: ignore[union-attr]
    router.check()


def test_a_removed_engine_leaves_no_tail_to_its_successor() -> None:
    router = hybrid()
    router.blocks_cleared("e-01")
    router.set_engines(engines(2)[1:], 0.0)
    router.set_engines(engines(3), 0.0)
    router.blocks_stored("e-01", KEYS)
    router.blocks_stored("e-03", KEYS)
    outcome = router.place(request(1, BLOCKS), 0.0)
    assert engine_of(outcome) in {"e-01", "e-03"}
    assert outcome.decision.hit_tokens == len(BLOCKS) * BLOCK  # type: ignore[union-attr]
    router.fleet.declare_tail("e-99", Tail(states=True))
    router.fleet.change_tail("e-99", STATE, True, KEYS)
    router.index.check()


def test_a_state_kept_at_the_end_of_a_prompt_serves_its_continuations() -> None:
    router = hybrid()
    router.blocks_stored("e-02", KEYS[:15])
    router.fleet.keep_tail("e-02", KEYS[:15])
    router.fleet.keep_tail("e-99", KEYS)
    outcome = router.place(request(1, BLOCKS), 0.0)
    assert engine_of(outcome) == "e-02"
    assert outcome.decision.hit_tokens == 15 * BLOCK  # type: ignore[union-attr]
    # Within that prompt nothing more is kept than before.
    assert router.index.match(KEYS[:14], 0b10).blocks(1) == 10
    router.index.check()
