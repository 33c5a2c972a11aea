"""Blocks that an advisory brought: which leave first, and that they never cost a block that would be lost."""

from __future__ import annotations

import random

from kvstore.tiers.block_facts import DRAM, SSD
from kvstore.transactions.block_catalog import BlockCatalog
from kvstore.transactions.expected_blocks import Expected
from kvstore.transactions.transactions import Rejection, Transactions
from tests.kvstore.kv_blocks import catalog, facts, key
from tests.kvstore.transactions.test_block_catalog import write_through
from tests.kvstore.transactions.test_transactions import store


def advise(transactions: Transactions, now: float, at_s: float, *names: object, keep_s: float = 60.0) -> bool:
    """Have blocks come for an advisory; returns whether there was room."""
    expected = Expected(now + at_s, now + keep_s)
    tx_id = f"advised {names} {now}"
    got = transactions.allocate(tx_id, [], [facts(name) for name in names], 10.0, now, expected)
    if isinstance(got, Rejection):
        return False
    records = transactions.begin_write(tx_id, [record.facts.key for record in got.new])
    assert records is not None
    transactions.end_write(records, [b"0" * 16] * len(records))
    assert transactions.commit(tx_id, now)
    return True


def in_dram(held: BlockCatalog, *names: object) -> list[bool]:
    records = [held.find(key(name)) for name in names]
    return [record is not None and DRAM in record.slots for record in records]


def test_a_prefetch_takes_no_place_of_a_block_that_would_be_lost() -> None:
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


def test_of_prefetched_blocks_the_last_expected_leaves_first() -> None:
    held = catalog(dram_slots=3)
    transactions = Transactions(held)
    assert advise(transactions, 0.0, 5.0, "soon")
    assert advise(transactions, 1.0, 50.0, "late")
    assert advise(transactions, 2.0, 10.0, "next")
    store(transactions, "demand")
    assert in_dram(held, "soon", "late", "next", "demand") == [True, False, True, True]
    assert not advise(transactions, 3.0, 50.0, "later still")
    assert advise(transactions, 3.0, 2.0, "sooner")
    assert in_dram(held, "soon", "next", "sooner") == [True, False, True]
    held.check()


def test_one_whose_time_is_over_leaves_before_all_others() -> None:
    held = catalog(dram_slots=3)
    transactions = Transactions(held)
    store(transactions, "oldest")
    assert advise(transactions, 0.0, 1.0, "spurious", keep_s=10.0)
    assert advise(transactions, 0.0, 5.0, "other", keep_s=100.0)
    held.expire(20.0)
    store(transactions, "new")
    assert in_dram(held, "oldest", "spurious", "other") == [True, False, True]
    held.check()


def test_a_block_that_was_read_is_like_any_other() -> None:
    held = catalog(dram_slots=2)
    transactions = Transactions(held)
    store(transactions, "old")
    assert advise(transactions, 0.0, 50.0, "read")
    held.close_read(held.open_read([key("read")]))
    store(transactions, "new")
    assert in_dram(held, "old", "read") == [False, True]
    assert len(held.expected) == 0


def test_random_work_loses_no_only_copy_to_a_prefetch() -> None:
    """Orders, duplicates and demand in any order: a prefetch costs no block but those that only advisories wanted."""
    for seed in range(8):
        held, rng = catalog(dram_slots=6, ssd_slots=6), random.Random(seed)
        transactions, advised = Transactions(held), set[bytes]()
        for now in range(400):
            name, before, dice = rng.randrange(20), keys_of(held), rng.random()
            if dice < 0.5:
                if advise(transactions, float(now), rng.uniform(0, 30), name) and key(name) not in before:
                    advised.add(key(name))
                assert before - keys_of(held) <= advised, seed
            elif dice < 0.8:
                if key(name) not in before:
                    store(transactions, name)
                    advised.discard(key(name))
            elif dice < 0.9:
                held.close_read(held.open_read([key(name)]))
                advised.discard(key(name))
            elif (record := held.open_fill(key(name), SSD)) is not None:
                held.close_fill(record, SSD, whole=True)
            held.expire(float(now))
            held.check()
            transactions.check()


def keys_of(held: BlockCatalog) -> set[bytes]:
    return {record.facts.key for record in held.page(-1, 1000)}
