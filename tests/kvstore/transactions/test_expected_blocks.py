"""Blocks that an advisory prefetched: their eviction order, and that they never evict a block that would be lost."""

from __future__ import annotations

import random

from kvstore.tiers.block_facts import DRAM, SSD
from kvstore.transactions.block_catalog import BlockCatalog
from kvstore.transactions.block_record import BlockRecord
from kvstore.transactions.expected_blocks import Expected
from kvstore.transactions.transactions import TransactionRejection, Transactions
from tests.kvstore.kv_blocks import catalog, facts, key
from tests.kvstore.transactions.test_block_catalog import write_through
from tests.kvstore.transactions.test_transactions import store


def advise(transactions: Transactions, now: float, at_s: float, *names: object, keep_s: float = 60.0) -> bool:
    """Add blocks for an advisory; return whether there was room."""
    expected = Expected(now + at_s, now + keep_s)
    tx_id = f"advised {names} {now}"
    got = transactions.allocate(tx_id, [], [facts(name) for name in names], 10.0, now, expected)
    if isinstance(got, TransactionRejection):
        return False
    records = transactions.begin_write(tx_id, [record.facts.key for record in got.new])
    assert records is not None
    transactions.end_write(records, [b"0" * 16] * len(records))
    assert transactions.commit(tx_id, now)
    return True


def advise_and_copy(held: BlockCatalog, transactions: Transactions, now: float, at_s: float, name: str) -> None:
    """Add a block for an advisory, and copy it to SSD too."""
    assert advise(transactions, now, at_s, name)
    write_through(held, name)


def in_dram(held: BlockCatalog, *names: object) -> list[bool]:
    records = [held.find(key(name)) for name in names]
    return [record is not None and DRAM in record.slots for record in records]


def test_a_prefetch_evicts_no_block_that_would_be_lost() -> None:
    held = catalog(dram_slots=2, ssd_slots=4)
    transactions = Transactions(held)
    store(transactions, "a", "b")
    assert not advise(transactions, 0.0, 5.0, "x")
    assert in_dram(held, "a", "b") == [True, True]
    write_through(held, "a")
    assert advise(transactions, 0.0, 5.0, "x")
    record = held.find(key("a"))
    assert record is not None
    assert list(record.slots) == [SSD]
    held.check()


def test_of_prefetched_blocks_the_last_expected_is_evicted_first() -> None:
    held = catalog(dram_slots=3)
    transactions = Transactions(held)
    advise_and_copy(held, transactions, 0.0, 5.0, "soon")
    advise_and_copy(held, transactions, 1.0, 50.0, "late")
    advise_and_copy(held, transactions, 2.0, 10.0, "next")
    store(transactions, "demand")
    assert in_dram(held, "soon", "late", "next", "demand") == [True, False, True, True]
    assert not advise(transactions, 3.0, 50.0, "later still")
    assert advise(transactions, 3.0, 2.0, "sooner")
    assert in_dram(held, "soon", "next", "sooner") == [True, False, True]
    held.check()


def test_an_expired_prefetched_block_is_evicted_before_all_others() -> None:
    held = catalog(dram_slots=3)
    transactions = Transactions(held)
    store(transactions, "oldest")
    assert advise(transactions, 0.0, 1.0, "spurious", keep_s=10.0)
    assert advise(transactions, 0.0, 5.0, "other", keep_s=100.0)
    write_through(held, "spurious")
    held.expire(20.0)
    store(transactions, "new")
    assert in_dram(held, "oldest", "spurious", "other") == [True, False, True]
    assert keys_of(held) >= {key("spurious")}
    held.check()


def test_prefetched_blocks_leave_dram_before_others_only_if_ssd_has_them() -> None:
    """Copies on other nodes may have been evicted meanwhile, so it may be the last copy."""
    held = catalog(dram_slots=3)
    transactions = Transactions(held)
    store(transactions, "oldest")
    assert advise(transactions, 0.0, 50.0, "late", keep_s=100.0)
    assert advise(transactions, 0.0, 1.0, "spurious", keep_s=10.0)
    assert not advise(transactions, 1.0, 2.0, "sooner"), "it would take the place of a block that is nowhere else"
    held.expire(20.0)
    store(transactions, "new", "newer")
    assert in_dram(held, "oldest", "late", "spurious") == [False, False, True], "its turn comes as any other's"
    held.check()


def test_a_prefetch_evicts_nothing_for_its_tenants_quota() -> None:
    held = catalog(tenant_quota_bytes=2500)
    transactions = Transactions(held)
    store(transactions, "a", "b")
    assert not advise(transactions, 0.0, 5.0, "x")
    assert keys_of(held) == {key("a"), key("b")}
    store(transactions, "demand")
    assert len(held) == 2
    held.check()


def test_a_prefetch_evicts_no_other_block_from_ssd_either() -> None:
    held = catalog(dram_slots=2, ssd_slots=1)
    transactions = Transactions(held)
    store(transactions, "old")
    write_through(held, "old")
    held.drop_copy(record_of(held, "old"), DRAM)
    assert advise(transactions, 0.0, 5.0, "x")
    assert held.open_fill(key("x"), SSD) is None
    assert held.expected.wanted([record_of(held, "x")]) == [key("x")], "a requested block is written to SSD"
    write_through(held, "x")
    assert list(record_of(held, "x").slots) == [DRAM, SSD]
    held.check()


def test_a_prefetched_block_that_was_read_is_an_ordinary_block() -> None:
    held = catalog(dram_slots=2)
    transactions = Transactions(held)
    store(transactions, "old")
    assert advise(transactions, 0.0, 50.0, "read")
    held.close_read(held.open_read([key("read")]))
    store(transactions, "new")
    assert in_dram(held, "old", "read") == [False, True]
    assert len(held.expected) == 0


def test_random_operations_lose_no_only_copy_to_a_prefetch() -> None:
    """Orders, duplicates and demand in any order: no prefetch or its SSD copy evicts a block that would be lost."""
    for seed in range(8):
        held, rng = catalog(dram_slots=6, ssd_slots=6), random.Random(seed)
        transactions, came = Transactions(held), 0
        for now in range(400):
            name, before, dice = rng.randrange(20), keys_of(held), rng.random()
            if dice < 0.5:
                came += advise(transactions, float(now), rng.uniform(0, 30), name) and key(name) not in before
                assert before <= keys_of(held), seed
            elif dice < 0.8:
                if key(name) not in before:
                    store(transactions, name)
            elif dice < 0.9:
                records = held.open_read([key(name)])
                held.expected.wanted(records)
                held.close_read(records)
            elif (record := held.open_fill(key(name), SSD)) is not None:
                held.close_fill(record, SSD, whole=True)
                assert before <= keys_of(held) or not record.brought, seed
            held.expire(float(now))
            held.check()
            transactions.check()
        assert came > 5


def record_of(held: BlockCatalog, name: object) -> BlockRecord:
    record = held.find(key(name))
    assert record is not None
    return record


def keys_of(held: BlockCatalog) -> set[bytes]:
    return {record.facts.key for record in held.page(-1, 1000)}
