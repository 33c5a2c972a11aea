"""A new owner receives what runs; peers that end and connections that are lost leave nothing.

One gateway's view of the epochs of a pool's owner: each number belongs to one gateway.
"""

from __future__ import annotations

import random

import pytest

from routing.chain import owner_decider
from routing.chain.owner_decider import REJECTED
from routing.chain.owner_messages import OwnerEpoch
from routing.chain.ownership import ONLY, SILENT_S, UNREACHED, Around, Ownership
from routing.ledger.reservations import DECODING
from routing.values import reasons
from routing.values.decision import ALONE
from tests.routing.chain.linked_gateways import BLOCKS, LinkedGateways, in_flight, linked, made, placed
from tests.routing.pools import pool


def test_an_ask_is_sent_to_the_next_owner() -> None:
    group = linked("abc")
    group["c"].place(made(1, "c", group))
    group.elect("b")
    group["b"].tick()
    group.deliver("b", "c")
    assert group.messages("c", "a") == ["Ask", "Withdraw"]
    assert group.messages("c", "b") == ["Afresh", "Ask"]
    group.deliver_all()
    assert group["c"].running["0001-c"].decided_by == "gateway b, epoch 2"
    assert [len(group[tag].link) for tag in "abc"] == [0, 1, 0]


def test_an_ask_under_another_epoch_is_rejected_and_sent_to_the_owner_that_the_rejection_names() -> None:
    group = linked("abc")
    group.elect("b")
    group["b"].tick()
    group.deliver("b", "a")
    group["c"].place(made(1, "c", group))
    group.deliver("c", "a")
    group.deliver("a", "c")
    assert group.messages("c", "b") == ["Afresh", "Ask"]
    group.deliver_all()
    assert group["c"].running["0001-c"].decided_by == "gateway b, epoch 2"


def test_an_ask_that_the_same_owner_rejects_is_decided_alone() -> None:
    group = linked()
    group["a"].ownership.seen = OwnerEpoch(1, "")
    asked = made(1, "b", group)
    group["b"].place(asked)
    group.deliver_all()
    assert group["b"].results == {REJECTED: 1}
    assert "0001-b" in group["b"].running


def test_a_new_owner_receives_what_runs_in_its_phase() -> None:
    group = linked("abc")
    prefilling, decoding = placed(group, 1, "c"), placed(group, 2, "c")
    group["c"].first_token(decoding)
    group.deliver_all()
    group.elect("b")
    group.run(0.1)
    phases = {item.request.request_id: item.phase for item in group["b"].router.reservations}
    assert phases.keys() == {prefilling, decoding}
    assert phases[decoding] == DECODING
    assert len(group["a"].link) == 0
    assert in_flight(group["a"]) == set()
    for name in (prefilling, decoding):
        group["c"].complete(name)
    group.deliver_all()
    for gateway in group.gateways.values():
        gateway.check_empty()


def test_a_new_owner_receives_long_prompts_by_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_decider, "MAX_TOOK_KEYS", BLOCKS)
    group = linked("abc")
    names = [placed(group, number, "c") for number in range(2)]
    group.elect("b")
    group.run(0.1)
    keys = [len(group["b"].router.reservations.by_id[name].request.keys) for name in names]
    assert sorted(keys) == [0, BLOCKS]


def test_a_request_that_waits_here_is_reported_to_the_owner_once_it_has_an_engine() -> None:
    group = LinkedGateways({tag: pool(size=1) for tag in "ab"})
    group.pass_time(0.1)
    first, second = (placed(group, number, "b") for number in range(2))
    assert group["b"].running[first].decided_by == ALONE
    group.elect("a")
    group.run(0.1)
    assert in_flight(group["a"]) == {first}
    group["b"].complete(first)
    assert group["b"].running[second].decided_by == ALONE
    group.deliver_all()
    assert in_flight(group["a"]) == {second}


def test_the_first_token_of_a_reported_request_dispatches_the_owners_own() -> None:
    group = LinkedGateways({tag: pool(size=1) for tag in "ab"})
    group.pass_time(0.1)
    first = placed(group, 1, "b")
    group["b"].first_token(first)
    group.elect("a")
    group["a"].tick()
    own = placed(group, 2, "a")
    group.deliver_all()
    assert own in group["a"].running
    assert group["a"].router.reservations.by_id[first].phase == DECODING


def test_only_a_gateway_that_could_ask_marks_its_decisions_as_alone() -> None:
    group = LinkedGateways({"a": pool(size=1)})
    group.pass_time(0.1)
    assert group["a"].running.get(placed(group, 1, "a")).decided_by == ""  # type: ignore[union-attr]
    assert not group["a"].link._alone


# -- peers that end


def test_requests_of_a_gateway_that_ends_are_released_and_the_queue_moves_on() -> None:
    group = linked("abc", size=1)
    for number in range(2):
        placed(group, number, "c")
    own, other = placed(group, 2, "a"), placed(group, 3, "b")
    group.dead = frozenset("c")
    group.run(0.1)
    assert list(group["a"].running) == [own]
    assert other in group["b"].waiting
    assert len(group["a"].link) == 1
    assert group["a"].link._sessions.keys() == {"b"}


def test_a_rejection_of_a_gateway_that_decides_alone_leaves_nothing() -> None:
    group = LinkedGateways({tag: pool(size=0, queue_limit=1) for tag in "ab"})
    group.run(0.1)
    placed(group, 1, "b")
    group.run(11.0)
    assert [item.code for item in group["b"].rejected] == [reasons.NO_ENGINE]
    group["b"].check_empty()


def test_an_answer_without_a_connection_releases_the_engine() -> None:
    group = linked(size=1)
    first, second, third = placed(group, 1, "a"), placed(group, 2, "b"), placed(group, 3, "a")
    group.cut_off("a", "b")
    group["a"].complete(first)
    assert list(group["a"].running) == [third]
    assert len(group["a"].link) == 0
    # The asker does not wait for ever.
    assert second in group["b"].waiting
    group.cut.clear()
    group.run(0.2)
    group["a"].complete(third)
    group.run(SILENT_S + 0.5)
    assert second in group["b"].running


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "too short to be seen"])
@pytest.mark.parametrize("ends", [("ab", "ba"), ("ab",), ("ba",)], ids=["both ways", "to the asker", "to the owner"])
@pytest.mark.parametrize("moment", ["asked", "queued", "running"])
def test_a_lost_connection_leaves_no_request_at_either_end(moment: str, ends: tuple[str, ...], seen: bool) -> None:
    group = linked(size=1)
    first = placed(group, 0, "a") if moment == "queued" else ""
    group["b"].place(made(1, "b", group))
    if moment != "asked":
        group.deliver_all()
    for sender, receiver in ends:
        group.cut_off(sender, receiver)
    if moment == "running":
        group["b"].complete("0001-b")
    if seen:
        group.pass_time(0.1)
    group.cut.clear()
    group.run(SILENT_S + 0.5)
    if first:
        group["a"].complete(first)
    group.deliver_all()
    if moment != "running":
        group["b"].complete("0001-b")
    group.deliver_all()
    assert not group["b"].rejected
    for gateway in group.gateways.values():
        gateway.check_empty()


@pytest.mark.parametrize("claimant", ["a", "z"])
def test_an_epoch_number_of_an_owner_is_never_promised_to_another_gateway(claimant: str) -> None:
    witness = Ownership("w", 0.0)
    witness.receive(OwnerEpoch(1, "m"), "m", 0.0)
    assert witness.promise(OwnerEpoch(1, claimant)) == OwnerEpoch(1, "m")
    assert witness.promise(OwnerEpoch(2, claimant)) == OwnerEpoch(2, claimant)


def test_a_promised_number_is_promised_again_only_to_its_gateway() -> None:
    witness = Ownership("w", 0.0)
    assert witness.promise(OwnerEpoch(3, "a")) == OwnerEpoch(3, "a")
    assert witness.promise(OwnerEpoch(3, "z")) == OwnerEpoch(3, "a")
    assert witness.promise(OwnerEpoch(3, "a")) == OwnerEpoch(3, "a")
    assert witness.promise(OwnerEpoch(2, "z")) == OwnerEpoch(3, "a")


def test_a_stale_epoch_is_ignored() -> None:
    ownership = Ownership("w", 0.0)
    assert ownership.receive(OwnerEpoch(4, "a"), "a", 0.0)
    assert not ownership.receive(OwnerEpoch(3, "z"), "z", 1.0)
    assert ownership.seen == OwnerEpoch(4, "a")


def test_gateways_with_a_common_witness_are_never_promised_the_same_number() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        witness, holders = Ownership("w", 0.0), dict[int, str]()
        for _ in range(50):
            proposed = OwnerEpoch(rng.randrange(1, 12), rng.choice("abc"))
            if witness.promise(proposed) == proposed:
                assert holders.setdefault(proposed.number, proposed.owner) == proposed.owner


@pytest.mark.parametrize(
    ("connected", "gone", "taken"),
    [
        ("b", "w", "w"),
        ("b", "", ""),
        ("", "w", ""),
        ("", "wb", ""),
        ("bc", "w", "w"),
        ("b", "wc", ""),
    ],
)
def test_the_lease_of_an_unreachable_holder_goes_to_the_best_connected_gateway(
    connected: str, gone: str, taken: str
) -> None:
    ownership = Ownership("a", 0.0)
    peers, rejecting = frozenset(connected + gone) | {"w"}, frozenset(gone)
    around = Around(peers, frozenset(connected), rejecting, rejecting, bus=True)
    ownership.settle(around, 0.0)
    ownership.claims(around, 0, 0.0)
    ownership.lost("w", 0.0)
    assert ownership.claims(around, 0, 10.0)[1] == taken


def test_a_gateway_that_reaches_no_live_gateway_reports_it() -> None:
    ownership, one = Ownership("a", 0.0), frozenset("b")
    ownership.settle(Around(one, frozenset(), one, one, bus=True), 3.0)
    assert (ownership.role, ownership.reason, ownership.since_s) == (ONLY, UNREACHED, 3.0)
    ownership.settle(Around(one, frozenset(), one, frozenset(), bus=True), 7.0)
    assert (ownership.role, ownership.reason) == (ONLY, ""), "it announces nothing any more: it has ended"
