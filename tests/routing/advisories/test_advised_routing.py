"""The engine reserved for an advised session under each rule, and when the request uses another one."""

from __future__ import annotations

import random

import msgspec
import pytest

from routing.advisories.advised_routing import Advised, session_key
from routing.ledger.node_loads import NodeLoads
from routing.policy.policy_document import AdvisoryRule, PrefillCostDocument, RoutingPolicy
from routing.router import Router
from routing.values import reasons
from routing.values.decision import Dispatched
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed
from tests.routing.ledger.test_node_loads import KEYS, loads
from tests.routing.pools import busy, engines

DEAR = PrefillCostDocument(base_s=0.0, per_token_s=0.01, per_token_squared_s=0.0)


def router(rule: AdvisoryRule, size: int = 2, nodes: NodeLoads | None = None) -> Router:
    made = Router("pool", RoutingPolicy(advisories=rule, prefill_cost=DEAR), 1)
    made.set_engines(engines(size), 0.0)
    made.follow_nodes(nodes)
    return made


def asked(number: int = 1, session: str = "s", now: float = 0.0) -> InferenceRequest:
    return InferenceRequest(
        f"request-{number:08}", KEYS, 16 * len(KEYS), 16, now, 5.0, tenant_id="acme", session_id=session
    )


def advise(made: Router, lead_s: float = 10.0, last: str = "", now: float = 0.0, session: str = "s") -> Advised:
    advised = made.advise(asked(0, session, now), last, lead_s, now, {})
    assert advised is not None
    return advised


def went(made: Router, number: int = 1, session: str = "s", now: float = 1.0) -> tuple[str, str]:
    outcome = made.place(asked(number, session, now), now)
    assert isinstance(outcome, Dispatched)
    return outcome.decision.engine_id, outcome.decision.reason


def test_with_advisories_off_nothing_is_reserved() -> None:
    made = router("off")
    assert made.advise(asked(), "", 10.0, 0.0, {}) is None
    assert went(made)[1] == reasons.LEAST_COST


def test_the_request_goes_to_the_reserved_engine_and_the_reservation_ends() -> None:
    made = router("gated")
    advised = advise(made)
    assert went(made) == (advised.engine_id, reasons.ADVISED)
    assert len(made.advised.sessions) == 0
    assert went(made, 2)[1] == reasons.LEAST_COST


def test_gated_switches_to_a_clearly_cheaper_engine_and_symphony_does_not() -> None:
    for rule, kept in (("gated", False), ("symphony", True)):
        made = router(rule)  # type: ignore[arg-type]  # both are rules
        advised = advise(made)
        busy(made, advised.engine_id, wait_s=100.0)
        assert (went(made)[0] == advised.engine_id) is kept, rule


def test_a_gain_below_the_margin_does_not_override_the_reservation() -> None:
    made = router("gated")
    advised = advise(made)
    busy(made, advised.engine_id, wait_s=1.2)
    assert went(made, now=1.0)[0] == advised.engine_id


def test_expected_sessions_count_so_that_several_spread() -> None:
    made = router("gated", size=4)
    chosen = [advise(made, session=f"s-{number}").engine_id for number in range(8)]
    assert len(set(chosen)) == 4
    made.advised.sessions.check()


def test_an_advisory_without_a_request_expires() -> None:
    made = router("gated")
    advise(made)
    assert went(made, now=500.0)[1] == reasons.LEAST_COST
    advise(made, session="another", now=1000.0)
    assert len(made.advised.sessions) == 1


def test_the_newest_advisory_of_a_session_wins_and_a_withdrawal_ends_it() -> None:
    made = router("gated")
    advise(made, now=0.0)
    advise(made, now=1.0)
    assert len(made.advised.sessions) == 1
    assert made.withdraw("acme", "s")
    assert not made.withdraw("acme", "s")


def test_a_removed_engine_takes_its_reservations_with_it() -> None:
    made = router("symphony")
    advised = advise(made)
    made.set_engines([engine for engine in engines(2) if engine.engine_id != advised.engine_id], 0.5)
    assert len(made.advised.sessions) == 0
    assert went(made)[0] != advised.engine_id


def test_kept_engines_are_no_expected_load() -> None:
    made = router("symphony", size=2)
    first, _ = went(made)
    for number in range(2, 6):
        made.observe(Completed(f"request-{number - 1:08}"), 1.0)
        assert went(made, number)[0] == first
    assert sum(made.advised.sessions.sessions_at(target) for target in made.view.roster.accepting) == 0


def test_a_symphony_session_without_an_advisory_stays_on_its_engine() -> None:
    made = router("symphony", size=4)
    first, _ = went(made)
    busy(made, first, wait_s=50.0)
    assert went(made, 2, now=2.0) == (first, reasons.ADVISED)
    assert advise(made, last=first, now=3.0).engine_id != first, "an advisory balances it"


def test_kv_on_another_node_is_staged_only_if_it_arrives_in_time() -> None:
    made = router("gated", nodes=loads(a=10))
    busy(made, "e-01", wait_s=100.0)
    advised = advise(made)
    assert (advised.engine_id, advised.staging is not None) == ("e-02", True)
    staging = advised.staging
    assert staging is not None
    assert (staging.source, staging.target, staging.keys) == ("a", "b", KEYS)
    assert advise(made, lead_s=staging.eta_s / 2).staging is None
    behind = made.advise(asked(0), "", 10.0, 0.0, {"b": 5.0})
    assert behind is not None
    assert behind.staging is None


def test_only_the_delta_is_staged() -> None:
    made = router("gated", nodes=loads(a=10, b=4))
    busy(made, "e-01", wait_s=100.0)
    staging = advise(made).staging
    assert staging is not None
    assert staging.keys == KEYS[4:]


def test_blocks_in_the_own_nodes_dram_are_not_staged_and_those_on_its_ssd_are() -> None:
    nodes = loads(a=10, b=10)
    made = router("gated", nodes=nodes)
    busy(made, "e-01", wait_s=100.0)
    assert advise(made).staging is None
    nodes.holdings.stored("b", KEYS[4:], dram=False)
    nodes.holdings.removed("a", KEYS)
    staging = advise(made).staging
    assert staging is not None
    assert (staging.source, staging.target, staging.keys) == ("b", "b", KEYS[4:])
    assert staging.eta_s == pytest.approx(nodes.seconds("b", "b", 6, 6)), "including the time to read the SSD"


def test_moves_in_progress_delay_the_arrival_but_are_not_part_of_the_move() -> None:
    made = router("gated", nodes=loads(a=10))
    busy(made, "e-01", wait_s=100.0)
    alone = advise(made).staging
    behind = made.advise(asked(0), "", 10.0, 0.0, {"b": 1.0})
    assert alone is not None
    assert behind is not None
    assert behind.staging is not None
    assert behind.staging.move_s == alone.move_s
    assert behind.staging.eta_s == pytest.approx(alone.eta_s + 1.0)


def test_symphony_stages_blocks_even_if_computing_them_is_faster() -> None:
    cheap = PrefillCostDocument(base_s=0.0, per_token_s=1e-9, per_token_squared_s=0.0)
    staged = {}
    for rule in ("gated", "symphony"):
        made = Router("pool", RoutingPolicy(advisories=rule, prefill_cost=cheap), 1)
        made.set_engines(engines(1), 0.0)
        made.follow_nodes(loads(b=10))
        staged[rule] = advise(made).staging
    assert staged["gated"] is None
    assert staged["symphony"] is not None
    assert staged["symphony"].keys == KEYS


def test_an_advisory_states_when_its_reservation_ends() -> None:
    assert advise(router("gated"), lead_s=10.0, now=5.0).expires_s == 65.0
    assert advise(router("gated"), lead_s=100.0, now=5.0).expires_s == 205.0


def test_sessions_of_equal_name_of_two_tenants_are_separate() -> None:
    made = router("gated")
    advise(made)
    stranger = msgspec.structs.replace(asked(), tenant_id="other")
    outcome = made.place(stranger, 1.0)
    assert isinstance(outcome, Dispatched)
    assert outcome.decision.reason == reasons.LEAST_COST
    assert session_key("a", "bc") != session_key("ab", "c")


def test_a_policy_with_another_rule_starts_without_reservations() -> None:
    made = router("gated")
    advise(made)
    made.set_policy(RoutingPolicy(advisories="symphony"), 2, 1.0)
    assert len(made.advised.sessions) == 0


@pytest.mark.parametrize("rule", ["gated", "symphony"])
def test_no_lost_or_repeated_advisory_leaks_a_reservation(rule: AdvisoryRule) -> None:
    made, rng, number = router(rule, size=4), random.Random(5), 0
    for step in range(400):
        session, now = f"s-{rng.randrange(12)}", float(step)
        dice = rng.random()
        if dice < 0.5:
            advise(made, rng.uniform(0.1, 30.0), session=session, now=now)
        elif dice < 0.6:
            made.withdraw("acme", session)
        elif dice < 0.7:
            made.set_engines(engines(rng.choice((2, 3, 4))), now)
        else:
            number += 1
            made.place(asked(number, session, now), now)
        made.advised.sessions.check()
        made.check()
    made.advised.sessions.expire(1e9)
    assert len(made.advised.sessions) == 0
