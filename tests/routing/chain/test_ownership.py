"""One gateway's view of the epochs of a pool's owner: each number belongs to one gateway."""

from __future__ import annotations

import random

import pytest

from routing.chain.owner_messages import OwnerEpoch
from routing.chain.ownership import ONLY, UNREACHED, Around, Ownership


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
