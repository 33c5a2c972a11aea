from __future__ import annotations

import random

import pytest

from kvstore.tiers.block_facts import DRAM
from kvstore.transactions.block_catalog import BlockCatalog
from kvstore.transactions.transactions import MAX_OPEN, Allocation, TransactionRejection, Transactions
from tests.kvstore.kv_blocks import SLOT, catalog, facts, key


def begin(
    transactions: Transactions,
    tx_id: str,
    new: list[object],
    reused: list[object] | None = None,
    now: float = 0.0,
    **of: str,
) -> Allocation | TransactionRejection:
    blocks = [facts(name, **of) for name in new]
    return transactions.allocate(tx_id, [key(name) for name in reused or []], blocks, 10.0, now)


def write(transactions: Transactions, tx_id: str, names: list[object]) -> None:
    records = transactions.begin_write(tx_id, [key(name) for name in names])
    assert records is not None
    transactions.end_write(records, [facts(name).checksum for name in names])


def store(transactions: Transactions, *names: object, now: float = 0.0, **of: str) -> None:
    tx_id = f"store-{names}-{random.random()}"
    assert isinstance(begin(transactions, tx_id, list(names), now=now, **of), Allocation)
    write(transactions, tx_id, list(names))
    assert transactions.commit(tx_id, now)


def clear(held: BlockCatalog) -> None:
    for slot in held.take_cleared():
        held.slot_cleared(slot)


@pytest.fixture
def held() -> BlockCatalog:
    return catalog()


@pytest.fixture
def transactions(held: BlockCatalog) -> Transactions:
    return Transactions(held)


def test_blocks_are_visible_from_the_commit_on(held: BlockCatalog, transactions: Transactions) -> None:
    begin(transactions, "t", ["a"])
    write(transactions, "t", ["a"])
    assert held.open_read([key("a")]) == [None]
    assert transactions.commit("t", 1.0)
    assert held.open_read([key("a")])[0] is not None
    assert [(change.kind, change.medium) for change in held.take_changes()] == [("stored", DRAM)]


def test_a_commit_needs_every_new_block_written(transactions: Transactions) -> None:
    begin(transactions, "t", ["a", "b"])
    write(transactions, "t", ["a"])
    assert not transactions.commit("t", 1.0)
    write(transactions, "t", ["b"])
    assert transactions.commit("t", 1.0)


def test_a_commit_while_bytes_arrive_is_rejected(transactions: Transactions) -> None:
    begin(transactions, "t", ["a"])
    transactions.begin_write("t", [key("a")])
    assert not transactions.commit("t", 1.0)


def test_repeated_commit_and_abort_are_harmless_but_not_one_after_the_other(transactions: Transactions) -> None:
    begin(transactions, "t", [])
    assert transactions.commit("t", 1.0)
    assert transactions.commit("t", 1.0)
    assert not transactions.abort("t")
    begin(transactions, "u", ["a"])
    assert transactions.abort("u")
    assert transactions.abort("u")
    assert not transactions.commit("u", 1.0)


def test_two_gateways_never_write_the_same_block(transactions: Transactions) -> None:
    begin(transactions, "one", ["a"])
    assert begin(transactions, "two", ["b", "a"]) == TransactionRejection("locked", (key("a"),))
    assert transactions.begin_write("two", [key("a")]) is None
    write(transactions, "one", ["a"])
    assert transactions.begin_write("one", [key("a")]) is None, "a written block is not written again"
    assert transactions.commit("one", 1.0)
    again = begin(transactions, "three", ["a"])
    assert isinstance(again, Allocation)
    assert [record.facts.key for record in again.present] == [key("a")]


def test_reused_blocks_stay_until_the_end(held: BlockCatalog, transactions: Transactions) -> None:
    store(transactions, "kept")
    begin(transactions, "t", [], ["kept"])
    for number in range(20):
        store(transactions, number)
    assert held.find(key("kept")) is not None
    assert transactions.commit("t", 1.0)
    for number in range(20, 40):
        store(transactions, number)
    assert held.find(key("kept")) is None


def test_an_expired_lease_frees_locks_and_room(held: BlockCatalog, transactions: Transactions) -> None:
    assert isinstance(begin(transactions, "t", list(range(8))), Allocation)
    assert begin(transactions, "u", ["x"], now=9.0) == TransactionRejection("no_room")
    assert transactions.expire(10.0) == 1
    assert transactions.ended("t") == "expired"
    assert not transactions.commit("t", 10.0)
    clear(held)
    assert isinstance(begin(transactions, "v", ["x"], now=10.0), Allocation)


def test_a_slot_still_being_written_is_not_reassigned(held: BlockCatalog, transactions: Transactions) -> None:
    begin(transactions, "t", ["a"])
    records = transactions.begin_write("t", [key("a")])
    assert records is not None
    transactions.abort("t")
    assert held.take_cleared() == []
    transactions.end_write(records, [b""])
    assert [item.slot for item in held.take_cleared()] == [0]


@pytest.mark.parametrize(
    ("new", "reused", "reason"),
    [
        (["a", "a"], [], "duplicate"),
        (["a"], ["a"], "duplicate"),
        (["a"], ["gone"], "missing"),
        (list(range(9)), [], "no_room"),
    ],
)
def test_an_allocation_that_cannot_be_met_changes_nothing(
    held: BlockCatalog, transactions: Transactions, new: list[object], reused: list[object], reason: str
) -> None:
    answer = begin(transactions, "t", new, reused)
    assert isinstance(answer, TransactionRejection)
    assert answer.reason == reason
    clear(held)
    assert (len(held), held.used_slots(DRAM), len(transactions)) == (0, 0, 0)
    transactions.check()


def test_a_block_larger_than_a_slot_is_rejected(transactions: Transactions) -> None:
    answer = transactions.allocate("t", [], [facts("a", length=SLOT + 1)], 1.0, 0.0)
    assert answer == TransactionRejection("too_large", (key("a"),))


def test_open_transactions_are_limited(transactions: Transactions) -> None:
    for number in range(MAX_OPEN):
        assert isinstance(begin(transactions, f"t{number}", []), Allocation)
    assert begin(transactions, "one more", []) == TransactionRejection("too_many")


def test_over_quota_a_tenants_own_blocks_are_evicted() -> None:
    held = catalog(tenant_quota_bytes=3000)
    transactions = Transactions(held)
    store(transactions, "other", tenant="other")
    for number in range(5):
        store(transactions, number)
        clear(held)
    assert held.usage.used("acme") == 3000
    assert [held.find(key(number)) is not None for number in range(5)] == [False, False, True, True, True]
    assert held.find(key("other")) is not None
    assert begin(transactions, "t", list(range(10, 14))) == TransactionRejection("over_quota")
    held.check()
