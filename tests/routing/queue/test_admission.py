"""Admission by load, SLO-infeasible requests, deferral: hand-computed cases on small pools (Mooncake §4.3)."""

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.ledger.fleet_view import NEVER
from routing.ledger.node_holdings import NodeHoldings
from routing.ledger.node_loads import NodeLoads
from routing.policy.admission_document import AdmissionDocument
from routing.policy.cost_document import DecodeCostDocument
from routing.policy.policy_document import PrefillCostDocument, RoutingPolicy, Stage
from routing.queue.slo_expiry import LastChances
from routing.router import Router
from routing.values import reasons
from routing.values.decision import Dispatched, Queued, Rejected
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, Failed, FirstToken
from simulator.baselines.registry import PLACEMENTS
from tests.routing.pools import engines, request
from tests.routing.test_router_properties import Ledger, step

SECOND = PrefillCostDocument(base_s=0.0, per_token_s=1e-3, per_token_squared_s=0.0, per_hit_token_s=0.0)
"""1,000 uncached tokens take one second."""
STEPS = DecodeCostDocument(base_s=0.01, per_sequence_s=0.01, per_context_token_s=0.0)
"""A batch of b takes (1 + b) × 10 ms a step."""


def router(
    *, size: int = 1, order: str = "fifo", tpot: float = 0.05, placement: str = "min_ttft", **admission: object
) -> Router:
    policy = RoutingPolicy(
        placement=Stage(name=placement),
        order=Stage(name=order),
        prefill_cost=SECOND,
        decode_cost=STEPS,
        tpot_slo_s=tpot,
        prefill_window_tokens=1,
        lookahead_s=0.0,
        admission=AdmissionDocument(**admission),  # type: ignore[arg-type]
    )
    made = Router("pool", policy, 1, placements=PLACEMENTS)
    made.set_engines(engines(size), 0.0)
    return made


def ask(number: int, seconds: float, *, at: float = 0.0, slo: float = 5.0) -> InferenceRequest:
    """Return a request with a unique prompt whose prefill takes `seconds`."""
    return request(number, [1000 + number], at=at, slo=slo, tokens=int(seconds * 1000))


def name(number: int) -> str:
    return f"request-{number:08}"


def code(outcome: object) -> str:
    return outcome.code if isinstance(outcome, Rejected) else ""


def decode(pool: Router, count: int, *, first: int = 100, at: float = 0.0) -> None:
    """Start `count` decodes, distributed over the engines in turn."""
    for number in range(first, first + count):
        assert isinstance(pool.place(ask(number, 0.001, at=at), at, hold=False), Dispatched)
        pool.observe(FirstToken(name(number)), at)


def test_off_admits_everything() -> None:
    pool = router()
    decode(pool, 50)
    for number in range(20):
        assert not isinstance(pool.place(ask(number, 2.0), 0.0), Rejected)


def test_a_prompt_that_would_be_late_is_rejected_with_its_lateness() -> None:
    pool = router(mode="early")
    pool.place(ask(1, 2.0), 0.0)
    pool.place(ask(2, 2.0), 0.0)
    rejected = pool.place(ask(3, 3.5), 0.0)
    assert isinstance(rejected, Rejected)
    assert rejected.code == reasons.PREFILL_OVERLOAD
    assert rejected.retry_after_s == pytest.approx(2 + 2 + 3.5 - 5)
    assert isinstance(pool.place(ask(4, 0.9), 0.0), Queued)
    pool.check()


def test_the_threshold_scales_the_objective() -> None:
    pool = router(mode="early", threshold=0.5)
    assert code(pool.place(ask(1, 2.6), 0.0)) == reasons.PREFILL_OVERLOAD
    assert not code(pool.place(ask(2, 2.4), 0.0))


def test_time_before_the_decision_counts() -> None:
    pool = router(mode="early")
    assert code(pool.place(ask(1, 2.0, at=0.0), 3.5)) == reasons.PREFILL_OVERLOAD


def test_early_admission_counts_the_current_decodes() -> None:
    # Four fit into 50 ms: (1 + 4) × 10 ms.
    pool = router(mode="early", decode_s=10.0)
    decode(pool, 3)
    assert not code(pool.place(ask(1, 0.1), 0.0))
    decode(pool, 1, first=200)
    rejected = pool.place(ask(2, 0.1), 0.0)
    assert isinstance(rejected, Rejected)
    assert rejected.code == reasons.DECODE_OVERLOAD
    # One of five ends within a fifth of the duration of a decode.
    assert rejected.retry_after_s == pytest.approx(10.0 / 5)


def test_prediction_subtracts_decodes_that_end_before_the_request_decodes() -> None:
    predictive = router(mode="predictive_instance", decode_s=2.0)
    early = router(mode="early", decode_s=2.0)
    for pool in (predictive, early):
        decode(pool, 4)
    # Its own prefill takes 3 s, and all four have then decoded for more than 2 s.
    assert code(early.place(ask(1, 3.0), 0.0)) == reasons.DECODE_OVERLOAD
    assert not code(predictive.place(ask(1, 3.0), 0.0))


def test_prediction_adds_prefills_that_end_before_the_request_decodes() -> None:
    predictive = router(mode="predictive_instance", decode_s=60.0)
    early = router(mode="early", decode_s=60.0)
    for pool in (predictive, early):
        for number in range(4):
            assert not code(pool.place(ask(number, 0.5), 0.0))
    assert code(predictive.place(ask(9, 0.5), 0.0)) == reasons.DECODE_OVERLOAD
    assert not code(early.place(ask(9, 0.5), 0.0))


def test_the_system_level_uses_the_mean_and_the_instance_level_the_chosen_engine() -> None:
    for mode, expected in (("predictive_system", ""), ("predictive_instance", reasons.DECODE_OVERLOAD)):
        pool = router(size=2, mode=mode, decode_s=60.0, placement="round_robin")
        book = pool.admission.book
        for number in range(4):
            book.begin(f"other-{number}", pool.fleet.known_target("e-01"), 100, 0.0)
        assert code(pool.place(ask(1, 0.1), 0.0)) == expected, mode


def test_a_request_is_judged_by_its_own_tpot_objective() -> None:
    pool = router(mode="early", decode_s=10.0)
    decode(pool, 4)
    asked = ask(1, 0.1)
    patient = InferenceRequest(
        asked.request_id, asked.keys, asked.prompt_tokens, asked.block_tokens, 0.0, 5.0, tpot_slo_s=0.0611
    )
    assert not code(pool.place(patient, 0.0))


def test_the_decode_load_is_the_step_time_over_the_objective() -> None:
    pool = router(size=2, tpot=0.05)
    pool.admission.book.begin("a", pool.fleet.known_target("e-01"), 100, 0.0)
    pool.admission.book.begin("b", pool.fleet.known_target("e-01"), 100, 0.0)
    assert pool.admission.decode_load(pool.fleet.known_target("e-01"), 1.0) == pytest.approx(0.03 / 0.05)
    assert pool.admission.decode_load(None, 1.0) == pytest.approx(0.02 / 0.05)


class TestInfeasible:
    def test_is_rejected_immediately_if_no_engine_could_serve_it_even_next(self) -> None:
        pool = router(size=2, reject_infeasible=True)
        for number in (1, 2):
            assert isinstance(pool.place(ask(number, 4.0, slo=9.0), 0.0), Dispatched)
        assert code(pool.place(ask(3, 1.5), 0.0)) == reasons.INFEASIBLE
        assert isinstance(pool.place(ask(4, 0.9), 0.0), Queued)

    def test_counts_the_best_engine_and_not_the_queue_ahead(self) -> None:
        pool = router(reject_infeasible=True, order="edf")
        for number in range(1, 8):
            pool.place(ask(number, 1.0, slo=60.0), 0.0)
        assert isinstance(pool.place(ask(9, 3.0), 0.0), Queued)

    def test_excludes_a_prompt_too_long_for_its_objective_on_an_idle_engine(self) -> None:
        pool = router(reject_infeasible=True)
        assert isinstance(pool.place(ask(1, 8.0), 0.0), Dispatched)
        assert isinstance(pool.place(ask(2, 8.0), 0.0), Queued)
        assert pool.tick(50.0) == [] or not any(isinstance(item, Rejected) for item in pool.tick(50.0))

    def test_rejects_a_queued_request_as_soon_as_it_becomes_infeasible(self) -> None:
        pool = router(reject_infeasible=True)
        assert isinstance(pool.place(ask(1, 4.5), 0.0), Dispatched)
        assert isinstance(pool.place(ask(2, 0.4), 0.0), Queued)
        # The engine overruns its estimate, so that the request's last chance passes at 5 − 0.4 s.
        assert pool.next_wake(4.0) == pytest.approx(4.5)
        assert [code(item) for item in pool.tick(4.59)] == []
        assert [code(item) for item in pool.tick(4.7)] == [reasons.INFEASIBLE]
        assert not pool.waiting
        pool.check()

    def test_off_lets_the_request_wait(self) -> None:
        pool = router()
        pool.place(ask(1, 9.0, slo=20.0), 0.0)
        assert isinstance(pool.place(ask(2, 1.0), 0.0), Queued)


class TestParking:
    def test_retries_and_dispatches_when_the_load_is_gone(self) -> None:
        pool = router(mode="early", decode_s=10.0, defer_s=1.0)
        decode(pool, 4)
        assert isinstance(pool.place(ask(1, 0.1), 0.0), Queued)
        assert len(pool.deferred) == 1
        assert pool.next_wake(0.0) == 1.0
        assert pool.tick(1.0) == []
        pool.observe(Completed(name(100)), 1.5)
        outcomes = pool.tick(2.0)
        assert [type(outcome) for outcome in outcomes] == [Dispatched]
        assert outcomes[0].decision.queued_s == 2.0  # type: ignore[union-attr]
        assert not pool.deferred
        pool.check()

    def test_ends_when_the_request_cannot_be_on_time_after_another_retry(self) -> None:
        pool = router(mode="early", decode_s=10.0, defer_s=2.0)
        decode(pool, 4)
        assert isinstance(pool.place(ask(1, 0.1), 0.0), Queued)
        assert pool.tick(2.0) == []
        assert [code(item) for item in pool.tick(4.0)] == [reasons.DECODE_OVERLOAD]
        assert pool.counts.rejected == {reasons.DECODE_OVERLOAD: 1}

    def test_a_client_disconnect_removes_its_request(self) -> None:
        pool = router(mode="early", decode_s=10.0, defer_s=1.0)
        decode(pool, 4)
        pool.place(ask(1, 0.1), 0.0)
        pool.observe(Failed(name(1)), 0.5)
        assert not pool.deferred
        assert pool.tick(1.0) == []

    def test_a_deferred_id_cannot_be_reused(self) -> None:
        pool = router(mode="early", decode_s=10.0, defer_s=1.0)
        decode(pool, 4)
        pool.place(ask(1, 0.1), 0.0)
        with pytest.raises(ValueError, match="already here"):
            pool.place(ask(1, 0.1), 0.2)

    def test_a_caller_that_does_not_wait_is_rejected(self) -> None:
        pool = router(mode="early", decode_s=10.0, defer_s=1.0)
        decode(pool, 4)
        assert code(pool.place(ask(1, 0.1), 0.0, hold=False)) == reasons.DECODE_OVERLOAD


def test_a_queued_request_is_rejected_at_the_deadline_of_its_class() -> None:
    pool = router()
    pool.place(ask(1, 9.0), 0.0)
    asked = ask(2, 0.1)
    pool.place(
        InferenceRequest(
            asked.request_id, asked.keys, asked.prompt_tokens, asked.block_tokens, 0.0, 5.0, give_up_s=3.0
        ),
        0.0,
    )
    assert pool.next_wake(0.0) == 3.0
    assert pool.tick(2.9) == []
    assert [code(item) for item in pool.tick(3.0)] == [reasons.DEADLINE_PASSED]


@pytest.mark.parametrize("mode", ["early", "predictive_system", "predictive_instance"])
@pytest.mark.parametrize("placement", ["least_cost", "skywalker"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=12, deadline=None)
def test_no_request_is_lost_or_answered_twice(mode: str, placement: str, seed: int) -> None:
    policy = RoutingPolicy(
        placement=Stage(name=placement),
        order=Stage(name="late_last"),
        tpot_slo_s=0.0155,
        admission=AdmissionDocument(mode=mode, defer_s=0.7, reject_infeasible=True, decode_s=3.0),  # type: ignore[arg-type]
    )
    pool = Router("pool", policy, 1)
    pool.set_engines(engines(4), 0.0)
    rng, ledger, now = Random(seed), Ledger(), 0.0
    for number in range(100):
        now += rng.random()
        step(pool, ledger, rng, now, number)
        pool.check()
        assert len(pool.waiting) + len(pool.deferred) == len(ledger.waiting)
    for _ in range(400):
        now += 0.5
        ledger.note(pool.tick(now))
        for item in sorted(ledger.dispatched):
            ledger.dispatched.discard(item)
            ledger.note(pool.observe(Completed(item), now))
    assert not ledger.waiting
    assert len(pool.admission.book) == 0


@pytest.mark.parametrize(("placement", "admitted"), [("least_cost", True), ("mooncake", True), ("min_ttft", False)])
def test_a_prompt_that_is_on_time_only_if_loaded_is_admitted_if_loads_count(placement: str, admitted: bool) -> None:
    """Its prefill takes 4 s, the engine is busy for 2 s, the objective is 5 s."""
    pool, asked = router(placement=placement, reject_infeasible=True), request(2, [7], slo=5.0, tokens=4000)
    holdings = NodeHoldings()
    holdings.join("a")
    holdings.stored("a", asked.keys)
    holdings.complete("a")
    loads = NodeLoads(holdings)
    loads.set_nodes({"e-01": "a"}, {})
    pool.place(ask(1, 2.0), 0.0)
    pool.view.load.ready_at[0] = 4.5
    asked = msgspec.structs.replace(asked, block_tokens=3900)
    assert code(pool.place(asked, 0.0)) == reasons.INFEASIBLE
    pool.follow_nodes(loads)
    outcome = pool.place(asked, 0.0)
    assert isinstance(outcome, Queued | Dispatched) is admitted
    pool.check()


def test_expiries_fire_in_order_and_once() -> None:
    chances = LastChances()
    chances.set("late", 3.0)
    chances.set("early", 1.0)
    assert chances.next_moment() == 1.0
    assert list(chances.due(2.0)) == ["early"]
    assert list(chances.due(2.0)) == []
    assert chances.next_moment() == 3.0


def test_a_moved_expiry_replaces_the_first() -> None:
    chances = LastChances()
    chances.set("a", 1.0)
    chances.set("a", 5.0)
    assert list(chances.due(4.0)) == []
    chances.set("a", NEVER)
    assert chances.next_moment() == NEVER


@given(st.integers(0, 2**32))
def test_at_most_twice_the_valid_entries_are_kept(seed: int) -> None:
    rng, chances, watched, now = Random(seed), LastChances(), dict[str, float](), 0.0
    for _ in range(300):
        name = f"r{rng.randrange(40)}"
        kind = rng.random()
        if kind < 0.6:
            watched[name] = now + rng.random() * 10
            chances.set(name, watched[name])
        elif kind < 0.8:
            watched.pop(name, None)
            chances.forget(name)
        else:
            now += rng.random()
            due = list(chances.due(now))
            assert due == [
                request_id for request_id, _ in sorted(watched.items(), key=lambda e: (e[1], e[0])) if request_id in due
            ]
            assert set(due) == {request_id for request_id, moment in watched.items() if moment <= now}
            for item in due:
                del watched[item]
        chances.check()
        assert chances.next_moment() == min(watched.values(), default=NEVER)
