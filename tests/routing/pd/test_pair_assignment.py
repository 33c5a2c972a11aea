"""Prefill and decode on separate engines: the decode engine, and the load of both legs."""

from collections.abc import Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.ledger.fleet_view import EngineFacts
from routing.policy.admission_document import AdmissionDocument
from routing.policy.cost_document import DecodeCostDocument
from routing.policy.policy_document import PrefillCostDocument, RoutingPolicy, Stage
from routing.router import Router
from routing.values import reasons
from routing.values.decision import Decision, Dispatched, Outcome, Queued, Rejected
from routing.values.observation import Completed, Failed, FirstToken, HandedOver
from tests.routing.pools import request


def facts(name: str, **fields: object) -> EngineFacts:
    role = {"p": "prefill", "d": "decode", "m": "mixed"}[name[0]]
    return EngineFacts(**{"engine_id": name, "incarnation": 1, "accepts": True, "role": role, **fields})  # type: ignore[arg-type]


def paired(engines: Sequence[EngineFacts | str] = ("p1", "p2", "d1", "d2"), **rules: object) -> Router:
    policy = RoutingPolicy(placement=Stage(name="least_cost"), order=Stage(name="fifo"), **rules)  # type: ignore[arg-type]
    router = Router("pool", policy, 1)
    router.set_engines([facts(engine) if isinstance(engine, str) else engine for engine in engines], 0.0)
    return router


def dispatched(outcome: Outcome) -> Decision:
    assert isinstance(outcome, Dispatched), outcome
    return outcome.decision


def legs(router: Router) -> int:
    assert router.pairs is not None
    router.check()
    return len(router.pairs.legs)


def place(router: Router, number: int, *, at: float = 0.0, **fields: object) -> Outcome:
    asked = msgspec.structs.replace(request(number, [number], at=at), **fields)
    return router.place(asked, at, hold=False)


def test_a_pool_without_roles_makes_no_pairs() -> None:
    router = paired(["m1", "m2"])
    assert dispatched(place(router, 1)).pair is None
    assert router.pairs is None


def test_prompts_go_to_prefill_engines_and_decodes_to_decode_engines() -> None:
    router = paired()
    decisions = [dispatched(place(router, number)) for number in range(8)]
    assert {decision.engine_id for decision in decisions} == {"p1", "p2"}
    partners = [decision.pair.engine_id for decision in decisions if decision.pair is not None]
    assert sorted(partners) == ["d1"] * 4 + ["d2"] * 4
    assert len({decision.pair.pairing_id for decision in decisions if decision.pair}) == 8
    assert legs(router) == 8
    assert {load.engine_id: load.running for load in router.loads(0.0)} == {"d1": 4, "d2": 4, "p1": 4, "p2": 4}


def test_the_pair_explains_its_choice_with_the_terms_of_both_engines() -> None:
    router = paired()
    pair = dispatched(place(router, 1)).pair
    assert pair is not None
    assert pair.reason == reasons.LEAST_TPOT
    best = pair.candidates[0]
    assert (best.engine_id, best.batch) == (pair.engine_id, 1)
    assert pair.tpot_s == pair.candidates[0].tpot_s > 0
    assert 0 < int(pair.pairing_id) < 2**63


def test_a_mixed_engine_serves_alone_next_to_pairs() -> None:
    router = paired(["m1", "p1", "d1"])
    pairs = {item.engine_id: item.pair for item in (dispatched(place(router, number)) for number in range(6))}
    assert pairs["m1"] is None
    assert pairs["p1"] is not None


def test_the_prefill_engine_is_free_after_the_handover() -> None:
    router = paired(["p1", "d1"])
    name = dispatched(place(router, 1)).decision_id
    router.observe(HandedOver(name), 0.5)
    assert (len(router.reservations), legs(router)) == (0, 1)
    assert router.view.load.pending_requests[router.fleet.known_target("p1")] == 0
    router.observe(FirstToken(name), 0.6)
    assert router.admission.book.decoding(router.fleet.known_target("d1")) == 1
    router.observe(Completed(name, 0), 0.9)
    router.observe(Completed(name, 0), 0.9)
    assert (len(router.reservations), legs(router), len(router.admission.book)) == (0, 0, 0)


def test_a_first_token_without_a_handover_ends_the_prefill_too() -> None:
    router = paired(["p1", "d1"])
    name = dispatched(place(router, 1)).decision_id
    router.observe(FirstToken(name), 0.6)
    assert (len(router.reservations), legs(router)) == (0, 1)


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_failure_releases_both_legs_and_the_request_can_be_placed_again(handed_over: bool) -> None:
    router = paired()
    first = dispatched(place(router, 1))
    if handed_over:
        router.observe(HandedOver(first.decision_id), 0.5)
    router.observe(Failed(first.decision_id), 0.6)
    assert (len(router.reservations), legs(router)) == (0, 0)
    assert first.pair is not None
    bad = frozenset({first.engine_id, first.pair.engine_id})
    again = dispatched(router.place(request(1, [1]), 1.0, hold=False, excluded=bad))
    assert again.pair is not None
    assert not bad & {again.engine_id, again.pair.engine_id}
    assert again.pair.pairing_id != first.pair.pairing_id


def test_a_request_with_only_its_decode_leg_cannot_be_placed_again() -> None:
    router = paired()
    router.observe(HandedOver(dispatched(place(router, 1)).decision_id), 0.5)
    with pytest.raises(ValueError, match="already here"):
        place(router, 1, at=1.0)


def test_a_queued_request_gets_its_decode_engine_at_dispatch_without_excluded_ones() -> None:
    router = paired(["p1", "d1", "d2"], prefill_window_tokens=1, lookahead_s=0.0)
    first = dispatched(router.place(request(1, [1]), 0.0))
    queued = router.place(request(2, [2]), 0.0, excluded=frozenset({"d1"}))
    assert isinstance(queued, Queued)
    assert queued.decision.pair is None
    (outcome,) = router.observe(HandedOver(first.decision_id), 1.0)
    pair = dispatched(outcome).pair
    assert pair is not None
    assert pair.engine_id == "d2"


def test_memory_precedes_tpot_and_promised_tokens_count_until_a_report_includes_them() -> None:
    router = paired(["p1", "d1", "d2"])
    router.report("d1", 0, 0.0, 1_000)
    router.report("d2", 0, 0.0, 3_000)
    tokens = {"prompt_tokens": 600, "max_output_tokens": 100}
    decisions = [dispatched(place(router, number, **tokens)) for number in range(5)]
    chosen = [decision.pair.engine_id for decision in decisions if decision.pair]
    assert sorted(chosen) == ["d1", "d2", "d2", "d2", "d2"]
    full = dispatched(place(router, 9, **tokens)).pair
    assert full is not None
    router.observe(Failed("request-00000009"), 0.0)
    assert (full.reason, full.candidates[0].fits) == (reasons.MOST_ROOM, False)
    router.report("d1", 0, 0.0, 1_000)
    assert router.pairs is not None
    assert router.pairs.legs.room_tokens(router.fleet.known_target("d1")) == 300
    on_d1 = next(decision for decision in decisions if decision.pair and decision.pair.engine_id == "d1")
    router.observe(FirstToken(on_d1.decision_id), 1.0)
    router.report("d1", 0, 1.0, 300)
    assert router.pairs.legs.room_tokens(router.fleet.known_target("d1")) == 300


def test_an_engine_that_does_not_report_its_memory_is_not_considered_full() -> None:
    router = paired(["p1", "d1"])
    pair = dispatched(place(router, 1, prompt_tokens=10**8)).pair
    assert pair is not None
    assert (pair.candidates[0].room_tokens, pair.candidates[0].fits) == (None, True)


def test_without_an_accepting_decode_engine_prefill_engines_accept_no_work() -> None:
    router = paired(["p1", facts("d1", accepts=False)])
    rejected = place(router, 1)
    assert isinstance(rejected, Rejected)
    assert rejected.code == reasons.NO_ENGINE
    assert isinstance(router.place(request(2, [2]), 0.0), Queued)
    (outcome,) = router.set_engines([facts("p1"), facts("d1")], 1.0)
    assert dispatched(outcome).pair is not None


def test_mixed_engines_continue_when_the_last_decode_engine_is_gone() -> None:
    router = paired(["p1", "d1", "m1"], prefill_window_tokens=1, lookahead_s=0.0)
    for number in range(6):
        router.place(request(number, [number]), 0.0)
    router.set_engines([facts("p1"), facts("m1")], 1.0)
    assert legs(router) == 0
    assert router.waiting.targets() == [router.fleet.known_target("m1")]


@pytest.mark.parametrize(("mode", "rejected"), [("early", 2), ("predictive_system", 3), ("predictive_instance", 2)])
def test_admission_rejects_requests_that_no_decode_engine_can_serve_in_time(mode: str, rejected: int) -> None:
    slow = DecodeCostDocument(base_s=0.01, per_sequence_s=0.03, per_context_token_s=0.0)
    rules = {"admission": AdmissionDocument(mode=mode), "tpot_slo_s": 0.1, "decode_cost": slow}  # type: ignore[arg-type]
    router = paired(["p1", "d1", "d2"], **rules)
    outcomes = []
    for number in range(8):
        outcomes.append(place(router, number, at=0.0))
        router.observe(FirstToken(f"request-{number:08}"), 0.0)
    codes = [outcome.code for outcome in outcomes if isinstance(outcome, Rejected)]
    assert codes == [reasons.DECODE_OVERLOAD] * rejected, (
        "three per engine take 0.1 s per token; system judges by the mean"
    )
    assert all(outcome.retry_after_s >= 1.0 for outcome in outcomes if isinstance(outcome, Rejected))


def predicting(decode_s: float, mode: str = "predictive_system") -> Router:
    """Return a router with one second per 1,000 prompt tokens, and 50 ms per sequence and step of at most 200."""
    return paired(
        ["p1", "d1"],
        admission=AdmissionDocument(mode=mode, decode_s=decode_s),  # type: ignore[arg-type]
        prefill_cost=PrefillCostDocument(base_s=0.0, per_token_s=1e-3, per_token_squared_s=0.0, per_hit_token_s=0.0),
        decode_cost=DecodeCostDocument(base_s=0.0, per_sequence_s=0.05, per_context_token_s=0.0),
        tpot_slo_s=0.2,
        ttft_slo_s=60.0,
    )


@pytest.mark.parametrize("mode", ["predictive_system", "predictive_instance"])
@pytest.mark.parametrize(("decode_s", "rejected"), [(0.5, False), (3.9, False), (4.1, True), (600.0, True)])
def test_predicted_decodes_are_removed_after_the_uniform_time(mode: str, decode_s: float, rejected: bool) -> None:
    router = predicting(decode_s, mode)
    for number in range(4):
        dispatched(place(router, number, prompt_tokens=1, ttft_slo_s=60.0))
        router.observe(FirstToken(f"request-{number:08}"), 0.0)
    # Its prefill begins at 1 s and ends at 4 s, when the four have decoded for 4 s.
    outcome = place(router, 9, at=1.0, prompt_tokens=3000, ttft_slo_s=60.0)
    assert isinstance(outcome, Rejected) == rejected


def test_prefills_that_end_earlier_are_added_and_removed_likewise() -> None:
    expected = []
    for decode_s in (600.0, 2.0, 0.5):
        router = predicting(decode_s)
        for number in range(2):
            dispatched(place(router, number, prompt_tokens=2000, ttft_slo_s=60.0))
        assert router.pairs is not None
        # Two prefills end evenly over 4 s. At 5 s those still decode that ended after 5 s - t_d.
        (decoder,) = router.pairs.decoders
        expected.append(router.pairs._expected(decoder, 0.0, 5.0, 1)[0])
    assert expected == pytest.approx([2.0, 2.0 * (4.0 - 3.0) / 4.0, 0.0])


def test_admission_rejects_requests_that_fit_into_no_decode_engine() -> None:
    router = paired(["p1", "d1"], admission=AdmissionDocument(mode="early"))
    router.report("d1", 0, 0.0, 100)
    rejected = place(router, 1)
    assert isinstance(rejected, Rejected)
    assert rejected.code == reasons.DECODE_OVERLOAD


def test_a_leg_expires_like_a_reservation() -> None:
    router = paired(reservation_ttl_s=10.0)
    name = dispatched(place(router, 1)).decision_id
    router.observe(HandedOver(name), 1.0)
    assert router.next_wake(1.0) == 10.0
    router.tick(10.0)
    assert legs(router) == 0
    assert router.next_wake(11.0) is None


class Course:
    """Expected state after all events so far, computed without the router."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.router = paired(max_wait_s=5.0, reservation_ttl_s=1e6)
        self.prefilling: set[str] = set()
        self.decoding: set[str] = set()
        self.now = 0.0

    def step(self, number: int) -> None:
        self.now += self.rng.random() * 0.2
        steps = [self.place] * 4 + [self.hand_over] * 3 + [self.first_token] + [self.end] * 3 + [self.report]
        for outcome in self.rng.choice(steps)(number):
            if isinstance(outcome, Dispatched):
                self.prefilling.add(outcome.decision.decision_id)
        assert legs(self.router) == len(self.prefilling) + len(self.decoding)
        assert len(self.router.reservations) == len(self.prefilling) + len(self.router.waiting)

    def place(self, number: int) -> list[Outcome]:
        asked = request(number, [self.rng.randrange(4) for _ in range(5)], at=self.now, tokens=4000)
        return [self.router.place(asked, self.now, hold=self.rng.random() < 0.8)]

    def hand_over(self, _: int) -> list[Outcome]:
        if not self.prefilling:
            return self.router.tick(self.now)
        return self._prefilled(HandedOver(self.rng.choice(sorted(self.prefilling))))

    def first_token(self, _: int) -> list[Outcome]:
        under_way = sorted(self.prefilling | self.decoding)
        return self._prefilled(FirstToken(self.rng.choice(under_way))) if under_way else []

    def _prefilled(self, seen: HandedOver | FirstToken) -> list[Outcome]:
        self.prefilling.discard(seen.request_id)
        self.decoding.add(seen.request_id)
        return self.router.observe(seen, self.now)

    def end(self, number: int) -> list[Outcome]:
        under_way = sorted(self.prefilling | self.decoding)
        name = self.rng.choice(under_way) if under_way else f"unknown-{number}"
        self.prefilling.discard(name)
        self.decoding.discard(name)
        return self.router.observe(self.rng.choice([Completed, Failed])(name), self.now)

    def report(self, _: int) -> list[Outcome]:
        room = self.rng.choice([None, 0, 9000])
        return self.router.report(self.rng.choice(["d1", "d2", "p1"]), 0, self.now, room)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_both_legs_last_exactly_as_long_as_their_work(seed: int) -> None:
    course = Course(seed)
    for number in range(120):
        course.step(number)
