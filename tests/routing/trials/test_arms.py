from random import Random

import msgspec
import pytest

from routing.policy.policy_document import RoutingPolicy, Stage
from routing.registry import PolicyStageError
from routing.router import Router
from routing.trials.arms import CANARY, CONTROL, LIVE, ArmEntry
from routing.values.decision import Dispatched, Queued, Rejected
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, FirstToken
from tests.routing.pools import engines, pool, request


def entry(share: float, placement: str = "round_robin", **changes: object) -> ArmEntry:
    known = {"arm": CANARY, "trial_id": "t1", "share": share, "policy_version": 7, "placement": Stage(name=placement)}
    return ArmEntry(**{**known, **changes})  # type: ignore[arg-type]


def attempt(router: Router, *entries: ArmEntry) -> None:
    router.arms.attempt(router.arms.built(entries, router.policy.order.name))


def of_session(number: int, session: str, tenant: str = "acme") -> InferenceRequest:
    return msgspec.structs.replace(request(number), session_id=session, tenant_id=tenant)


def test_without_a_trial_no_arm_is_named() -> None:
    outcome = pool().place(request(1), 0.0, hold=False)
    assert isinstance(outcome, Dispatched)
    assert outcome.decision.arm == ""


def test_a_session_stays_in_its_arm_and_the_share_is_met() -> None:
    router = pool()
    attempt(router, entry(0.2))
    arms = {session: router.arms.name_of(of_session(1, f"s{session}")) for session in range(4000)}
    assert all(router.arms.name_of(of_session(2, f"s{session}")) == arm for session, arm in arms.items())
    share = list(arms.values()).count(CANARY) / len(arms)
    assert share == pytest.approx(0.2, abs=0.03)


def test_a_growing_share_keeps_its_sessions_and_another_trial_gets_others() -> None:
    router = pool()
    sessions = [of_session(1, f"s{number}") for number in range(2000)]

    def taken(*entries: ArmEntry) -> set[str]:
        attempt(router, *entries)
        return {session.session_id for session in sessions if router.arms.name_of(session) == CANARY}

    small, large = taken(entry(0.05)), taken(entry(0.5))
    assert small < large
    assert taken(entry(0.05, trial_id="t2")) != small
    assert taken(entry(0.0)) == set()
    assert len(taken(entry(1.0))) == len(sessions)


def test_sessions_are_separate_per_tenant_and_requests_without_one_independent() -> None:
    router = pool()
    attempt(router, entry(0.5))
    tenants = {router.arms.name_of(of_session(1, "same", f"tenant-{number}")) for number in range(50)}
    alone = {router.arms.name_of(request(number)) for number in range(50)}
    assert tenants == alone == {LIVE, CANARY}


def test_the_decision_carries_the_arm_with_its_placement_and_version() -> None:
    router = pool()
    attempt(router, entry(0.5), entry(1.0, "least_loaded", arm=CONTROL, trial_id="c", policy_version=1))
    seen = set()
    for number in range(40):
        outcome = router.place(request(number), 0.0, hold=False)
        assert isinstance(outcome, Dispatched)
        seen.add((outcome.decision.arm, outcome.decision.placement, outcome.decision.policy_version))
    assert seen == {(CANARY, "round_robin", 7), (CONTROL, "least_loaded", 1)}


def test_an_invalid_arm_is_rejected_and_changes_nothing() -> None:
    router = pool()
    attempt(router, entry(0.5))
    before = router.arms.candidate_arms
    for wrong in ((entry(0.5, "central"),), (entry(0.5, "nobody"),), (entry(1.5),), (entry(0.1), entry(0.2))):
        with pytest.raises(PolicyStageError):
            router.arms.built(wrong, "fifo")
    assert router.arms.candidate_arms is before


def test_an_arm_keeps_its_learned_state_when_its_share_grows() -> None:
    router = pool()
    attempt(router, entry(0.1, "dual_map"))
    assert router.arms.candidate_arms is not None
    first = router.arms.candidate_arms[0].placement
    attempt(router, entry(0.5, "dual_map"))
    assert router.arms.candidate_arms[0].placement is first
    attempt(router, entry(0.5, "dual_map", trial_id="t2"))
    assert router.arms.candidate_arms[0].placement is not first


@pytest.mark.parametrize("placement", ["dual_map", "lbgr", "round_robin", "mooncake"])
def test_random_operations_with_arms_keep_all_parts_consistent(placement: str) -> None:
    rng = Random(7)
    policy = RoutingPolicy(
        placement=Stage(name="dual_map", params={"rebalance": True}),
        order=Stage(name="late_last"),
        prefill_window_tokens=1024,
    )
    router = Router("pool", policy, 1)
    router.set_engines(engines(4), 0.0)
    open_requests: list[str] = []
    now = 0.0
    for number in range(250):
        now += rng.random() * 0.05
        if number % 50 == 10:
            attempt(router, entry(rng.random(), placement), entry(0.3, "least_loaded", arm=CONTROL, trial_id="c"))
        if number % 80 == 79:
            router.arms.attempt(None)
        if number == 120:
            router.set_engines(engines(3), now)
        asked = msgspec.structs.replace(
            request(number, tuple(rng.choices(range(6), k=3)), at=now), session_id=f"s{rng.randrange(30)}"
        )
        outcome = router.place(asked, now, hold=rng.random() < 0.8)
        assert isinstance(outcome, Dispatched | Queued | Rejected)
        open_requests.append(asked.request_id)
        if len(open_requests) > 12:
            ended = open_requests.pop(rng.randrange(len(open_requests)))
            router.observe(FirstToken(ended), now)
            router.observe(Completed(ended, 0), now)
        if number % 10 == 0:
            router.tick(now)
            router.check()
    router.check()


def test_a_pool_that_is_itself_an_arm_signs_decisions_and_keeps_its_placement() -> None:
    for own in (CANARY, LIVE):
        router = pool()
        live = router.arms.live
        router.arms.attempt(None, own)
        outcome = router.place(request(1), 0.0, hold=False)
        assert isinstance(outcome, Dispatched)
        assert outcome.decision.arm == own
        assert router.arms.placement_of(request(2)) is live
        router.check()
        router.arms.attempt(None)
        assert router.arms.name_of(request(3)) == ""


def test_a_holdback_within_a_pool_on_trial_keeps_its_own_name() -> None:
    router = pool()
    router.arms.attempt(router.arms.built((entry(0.5, arm=CONTROL),), router.policy.order.name), CANARY)
    names = {router.arms.name_of(of_session(1, f"s{number}")) for number in range(100)}
    assert names == {CANARY, CONTROL}
    router.check()
