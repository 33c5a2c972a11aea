"""The owner decides for all gateways; both account; every delay, loss, and election ends with one engine or none."""

from __future__ import annotations

import msgspec
import pytest

from routing.advisories.advised_sessions import StoredAdvisory
from routing.chain import owner_decider
from routing.chain.decider import Decider
from routing.chain.owner_decider import ANSWER_S, ANSWERED, LATE, REJECTED, UNREACHABLE, WITHDRAWN
from routing.chain.ownership import ALONE as DECIDES_ALONE
from routing.chain.ownership import ASKS, SILENT_S
from routing.ledger.reservations import DECODING
from routing.values import reasons
from routing.values.decision import ALONE, OTHER_KEYS, Dispatched, Queued
from routing.values.observation import Failed
from tests.routing.chain.linked_gateways import BLOCKS, LinkedGateways, in_flight, linked, made, placed
from tests.routing.pools import engines, pool


def test_the_link_is_a_decider() -> None:
    links: list[Decider] = [linked()["a"].link]
    assert links


def test_the_owner_decides_and_both_account_until_the_end() -> None:
    group = linked()
    asked = made(1, "b", group)
    outcome = group["b"].place(asked)
    assert isinstance(outcome, Queued)
    assert group.messages("b", "a") == ["Ask"]
    group.now += 0.05
    group.deliver("b", "a")
    assert len(group["a"].link) == 1
    group.now += 0.05
    group.deliver("a", "b")
    decision = group["b"].running[asked.request_id]
    assert decision.decided_by == "gateway a, epoch 1"
    assert decision.decided_s == pytest.approx(group.now)
    for gateway in group.gateways.values():
        assert in_flight(gateway) == {asked.request_id}
    group["b"].first_token(asked.request_id)
    group.deliver_all()
    assert [item.phase for item in group["a"].router.reservations] == [DECODING]
    group["b"].complete(asked.request_id)
    group.deliver_all()
    for gateway in group.gateways.values():
        gateway.check_empty()
    assert group["b"].results == {ANSWERED: 1}


def test_the_owner_decides_its_own_requests_at_once() -> None:
    group = linked()
    outcome = group["a"].place(made(1, "a"))
    assert isinstance(outcome, Dispatched)
    assert outcome.decision.decided_by == ""
    assert not group.under_way["a", "b"]


def test_requests_of_all_gateways_spread_like_those_of_one() -> None:
    group = linked("abc", size=6)
    names = [placed(group, number, "abc"[number % 3]) for number in range(6)]
    chosen = [group[name[-1]].running[name].engine_id for name in names]
    assert sorted(chosen) == [item.engine_id for item in engines(6)]


def test_a_request_queued_at_the_owner_is_dispatched_once_an_engine_is_free() -> None:
    group = linked(size=1)
    first, second = placed(group, 1, "a"), placed(group, 2, "b")
    assert second in group["b"].waiting
    # It is acknowledged, so that the wait does not make the owner late.
    group.run(2 * ANSWER_S)
    assert second in group["b"].waiting
    group["a"].complete(first)
    assert group.messages("a", "b") == ["OwnerAnswered"]
    group.deliver_all()
    assert group["b"].running[second].queued_s == pytest.approx(group.now - 0.1)


def test_the_queue_of_the_owner_is_one_queue() -> None:
    group = linked("abc", size=1)
    names = [placed(group, number, tag) for number, tag in enumerate("abcba")]
    for name in names:
        assert list(group[name[-1]].running) == [name]
        group[name[-1]].complete(name)
        group.deliver_all()
    for gateway in group.gateways.values():
        gateway.check_empty()


def test_a_rejection_by_the_owner_reaches_the_client() -> None:
    group = linked(size=1, queue_limit=1)
    for number in range(2):
        placed(group, number, "a")
    name = placed(group, 2, "b")
    assert [(item.request_id, item.code) for item in group["b"].rejected] == [(name, reasons.QUEUE_FULL)]
    assert len(group["a"].link) == 0


def test_without_hold_the_owner_chooses_at_once() -> None:
    group = linked(size=1)
    placed(group, 1, "a")
    assert isinstance(group["b"].place(made(2, "b"), hold=False), Queued)
    group.deliver_all()
    assert group["b"].running


def test_the_owner_avoids_excluded_engines_and_those_that_the_asker_cannot_reach() -> None:
    group = linked(size=3)
    group["b"].unreachable = frozenset({"e-02"})
    for number in range(3):
        group["b"].place(made(number, "b"), excluded=["e-01"])
        group.deliver_all()
    assert {item.engine_id for item in group["b"].running.values()} == {"e-03"}


# -- the end of an ask


@pytest.mark.parametrize("delivered", ["nothing", "the ask", "the answer"])
def test_a_request_whose_client_disconnects_leaves_nothing(delivered: str) -> None:
    group = linked()
    group["b"].place(made(1, "b"))
    if delivered != "nothing":
        group.deliver("b", "a")
    if delivered == "the answer":
        group.deliver("a", "b")
    group["b"].observe(Failed("0001-b"))
    group.deliver_all()
    for gateway in group.gateways.values():
        gateway.check_empty()
    assert group["b"].results == {ANSWERED if delivered == "the answer" else WITHDRAWN: 1}


def test_a_withdrawn_request_leaves_the_queue_of_the_owner() -> None:
    group = linked(size=1)
    first, second, third = (placed(group, number, "b") for number in range(3))
    group["b"].observe(Failed(second))
    group.deliver_all()
    assert second not in in_flight(group["a"])
    group["b"].complete(first)
    group.deliver_all()
    assert list(group["b"].running) == [third]


def test_an_answer_that_crosses_the_withdrawal_is_ignored_and_its_engine_is_released() -> None:
    group = linked(size=1)
    first, second = placed(group, 1, "a"), placed(group, 2, "b")
    group["a"].complete(first)
    group["b"].observe(Failed(second))
    assert group.messages("a", "b") == ["OwnerAnswered"]
    assert group.messages("b", "a") == ["Withdraw"]
    group.deliver_all()
    for gateway in group.gateways.values():
        gateway.check_empty()


def test_a_late_owner_is_not_asked_for_a_while_and_its_answer_is_ignored() -> None:
    group = linked()
    group["b"].place(made(1, "b", group))
    group.pass_time(0.3, "b")
    assert not group["b"].running
    group.pass_time(0.1, "b")
    assert group["b"].running["0001-b"].decided_by == ALONE
    assert group["b"].results == {LATE: 1}
    assert group["b"].ownership.role == DECIDES_ALONE
    assert isinstance(group["b"].place(made(2, "b", group)), Dispatched)
    group.deliver_all()
    assert len(group["a"].link) == 0
    assert in_flight(group["b"]) == set(group["b"].running) == {"0001-b", "0002-b"}
    # Later it is asked again, and receives what runs.
    group.run(SILENT_S + 0.1)
    assert group["b"].ownership.role == ASKS
    assert in_flight(group["a"]) == set(group["b"].running)


def test_a_request_queued_at_a_late_owner_is_decided_alone_too() -> None:
    group = linked(size=1)
    first, second = placed(group, 1, "b"), placed(group, 2, "b")
    group.now += 0.01
    group["b"].place(made(3, "b", group))
    group.pass_time(2 * ANSWER_S, "b")
    assert group["b"].results == {ANSWERED: 1, LATE: 1, REJECTED: 1}
    assert {second, "0003-b"} == group["b"].waiting
    group["b"].complete(first)
    ((name, decision),) = group["b"].running.items()
    assert (decision.decided_by, {name} | group["b"].waiting) == (ALONE, {second, "0003-b"})


def test_an_owner_without_a_connection_is_not_asked() -> None:
    group = linked()
    group.cut_off("b", "a")
    outcome = group["b"].place(made(1, "b"))
    assert isinstance(outcome, Dispatched)
    assert group["b"].results == {UNREACHABLE: 1}
    group["b"].tick()
    assert (group["b"].ownership.role, group["b"].link.epoch) == (DECIDES_ALONE, None)


def test_beyond_the_limit_of_asks_a_gateway_decides_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_decider, "MAX_WAITING", 1)
    group = linked()
    assert isinstance(group["b"].place(made(1, "b")), Queued)
    assert isinstance(group["b"].place(made(2, "b")), Dispatched)
    assert group.messages("b", "a") == ["Ask", "Took"]
    group.deliver_all()
    assert in_flight(group["a"]) == {"0001-b", "0002-b"}


# -- details of an answer


def test_a_queued_request_whose_withdrawal_is_lost_ends_with_its_notice() -> None:
    group = linked(size=1)
    first, second = placed(group, 1, "a"), placed(group, 2, "b")
    group["b"].observe(Failed(second))
    group.under_way["b", "a"].clear()
    group["b"].observe(Failed(second))
    group["a"].complete(first)
    group.deliver_all()
    group["a"].check_empty()


def test_an_id_under_way_here_is_rejected_at_once() -> None:
    group = linked()
    group["b"].place(made(1, "b"))
    with pytest.raises(ValueError, match="already here"):
        group["b"].link.place(made(1, "b"), group.now)
    group.deliver_all()
    with pytest.raises(ValueError, match="already here"):
        group["b"].link.place(made(1, "b"), group.now)
    assert list(group["b"].running) == ["0001-b"]


def test_an_id_that_the_owner_already_has_is_decided_by_its_gateway() -> None:
    group = linked()
    name = placed(group, 1, "b")
    # The owner does not receive the end, and the request is placed a second time.
    group["b"].observe(Failed(name))
    group.under_way["b", "a"].clear()
    group["b"].place(made(1, "b"))
    group.deliver_all()
    assert group["b"].results == {ANSWERED: 1, REJECTED: 1}
    assert name in group["b"].running
    group["b"].complete(name)
    group.deliver_all()
    for gateway in group.gateways.values():
        gateway.check_empty()


def test_an_owner_with_another_secret_decides_by_length() -> None:
    group = linked()
    group["a"].other_keys, group["b"].other_keys = frozenset("b"), frozenset("a")
    name = placed(group, 1, "b")
    assert group["b"].running[name].decided_by == f"gateway a, epoch 1{OTHER_KEYS}"
    keys = [len(group[tag].router.reservations.by_id[name].request.keys) for tag in "ab"]
    assert keys == [0, BLOCKS]


def test_a_decision_names_the_incarnations_that_its_gateway_knows() -> None:
    group = LinkedGateways({tag: pool(size=0) for tag in "ab"})
    for tag, incarnation in (("a", 1), ("b", 7)):
        prefill, decode = engines(2)
        facts = [msgspec.structs.replace(prefill, role="prefill"), msgspec.structs.replace(decode, role="decode")]
        group[tag].router.set_engines([msgspec.structs.replace(item, incarnation=incarnation) for item in facts], 0.0)
    group.elect("a")
    group.run(0.1)
    decision = group["b"].running[placed(group, 1, "b")]
    assert decision.pair is not None
    assert (decision.incarnation, decision.pair.incarnation) == (7, 7)


def test_an_engine_that_is_unknown_here_is_named_without_an_incarnation() -> None:
    group = linked()
    group["b"].router.set_engines([], group.now)
    name = placed(group, 1, "b")
    assert group["b"].running[name].incarnation == 0
    assert in_flight(group["b"]) == set()
    group["b"].complete(name)
    group.deliver_all()
    group["a"].check_empty()


def test_the_effect_of_an_advisory_reaches_the_gateway_of_the_request() -> None:
    group = linked()
    group["a"].advisory = StoredAdvisory(1.0, "e-01", "useful")
    name = placed(group, 1, "b")
    assert group["b"].advised == {name: group["a"].advisory}
    assert group["a"].advised == {}
