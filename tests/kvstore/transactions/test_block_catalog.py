"""Pins as people see them: one per pinned prefix, each with its own blocks."""

from __future__ import annotations

import msgspec

from kvstore.tiers.block_facts import DRAM, SSD, BlockFacts
from kvstore.tiers.block_header import BlockHeader
from kvstore.transactions.block_catalog import BlockCatalog
from kvstore.transactions.pins import PinnedPrefix, pinned_prefixes
from kvstore.transactions.transactions import Transactions
from tests.kvstore.kv_blocks import catalog, facts, key
from tests.kvstore.transactions.test_transactions import clear, store


def write_through(held: BlockCatalog, *names: object) -> None:
    for name in names:
        record = held.open_fill(key(name), SSD)
        assert record is not None
        held.close_fill(record, SSD, whole=True)


def test_a_copy_on_ssd_lets_the_dram_copy_be_evicted_without_losing_the_block() -> None:
    held = catalog(dram_slots=2)
    transactions = Transactions(held)
    store(transactions, "a")
    write_through(held, "a")
    store(transactions, "b", "c")
    record = held.find(key("a"))
    assert record is not None
    assert list(record.slots) == [SSD]
    assert [(change.kind, change.medium) for change in held.take_changes()][:3] == [
        ("stored", DRAM), ("stored", SSD), ("removed", DRAM),
    ]  # fmt: skip


def test_a_context_cache_is_offloaded_and_never_evicted() -> None:
    held = catalog(dram_slots=2, ssd_slots=2)
    transactions = Transactions(held)
    store(transactions, "pinned")
    assert held.pin([key("pinned")], 100.0, 0.0) == 1
    for number in range(4):
        store(transactions, number)
        assert held.find(key("pinned")) is not None, "alone in DRAM it stays there"
    write_through(held, "pinned")
    for number in range(4, 8):
        store(transactions, number)
        write_through(held, number)
    record = held.find(key("pinned"))
    assert record is not None
    assert list(record.slots) == [SSD]
    held.expire(100.0)
    store(transactions, "x", "y")
    write_through(held, "x", "y")
    assert held.find(key("pinned")) is None, "after its end it is a block as others"
    held.check()


def test_a_pin_keeps_a_block_past_its_expiry_but_not_past_the_longest_pin() -> None:
    held = catalog(max_age_s=10.0, max_pin_s=50.0)
    store(Transactions(held), "a")
    held.pin([key("a")], 1000.0, 0.0)
    held.expire(49.0)
    assert held.find(key("a")) is not None
    held.expire(50.0)
    assert held.find(key("a")) is None


def test_a_tenant_pins_within_its_quota() -> None:
    held = catalog(pin_quota_bytes=2000)
    store(Transactions(held), "a", "b", "c")
    assert held.pin([key(name) for name in "abc"], 10.0, 0.0) == 2
    assert held.unpin([key("a")]) == 1
    assert held.pin([key("c")], 10.0, 0.0) == 1


def test_a_block_expires() -> None:
    held = catalog(max_age_s=10.0)
    store(Transactions(held), "a")
    held.expire(9.9)
    assert held.find(key("a")) is not None
    held.expire(10.0)
    assert held.find(key("a")) is None


def test_blocks_in_use_are_not_evicted() -> None:
    held = catalog(dram_slots=2)
    transactions = Transactions(held)
    store(transactions, "a")
    read = held.open_read([key("a")])
    store(transactions, "b")
    store(transactions, "c")
    assert held.find(key("a")) is not None
    held.close_read(read)
    store(transactions, "d", "e")
    assert held.find(key("a")) is None


def test_a_purge_lists_every_slot_with_bytes_of_the_tenant_including_free_ones() -> None:
    held = catalog()
    transactions = Transactions(held)
    store(transactions, "old", "kept")
    store(transactions, "other", tenant="other")
    record = held.find(key("old"))
    assert record is not None
    held.forget(record)
    clear(held)
    assert held.purge("acme") == 1
    cleared = held.take_cleared()
    assert sorted((item.medium, item.slot) for item in cleared) == [(DRAM, 0), (DRAM, 1)]
    assert all(item.scrub for item in cleared)
    for item in cleared:
        held.slot_cleared(item)
    assert held.find(key("other")) is not None
    assert held.purge("acme") == 0
    assert held.take_cleared() == []
    held.check()


def test_a_purge_waits_for_slots_that_another_call_overwrites() -> None:
    held = catalog()
    store(Transactions(held), "a")
    held.purge("acme")
    taken = held.take_cleared()
    assert held.is_leaving("acme"), "its owner overwrites them right now"
    for slot in taken:
        held.slot_cleared(slot)
    assert not held.is_leaving("acme")
    held.check()


def test_a_slot_that_could_not_be_overwritten_is_not_reused_before_it_is() -> None:
    held = catalog(dram_slots=1)
    store(Transactions(held), "a")
    held.purge("acme")
    [slot] = held.take_cleared()
    held.slot_not_cleared(slot)
    held.check()
    assert held.unclean == 1
    assert held.create(facts("b"), 0.0) is None
    held.retry_clearing(5)
    assert held.take_cleared() == [slot]
    held.slot_cleared(slot)
    assert held.create(facts("b"), 0.0) is not None
    held.check()


def test_the_slot_of_a_block_that_was_never_written_is_overwritten() -> None:
    held = catalog(dram_slots=1)
    store(Transactions(held), "a")
    record = held.create(facts("b", tenant="other"), 0.0)
    assert record is not None
    held.unlock(record)
    held.forget(record)
    assert [slot.scrub for slot in held.take_cleared()] == [True], "the bytes of the first one are still there"


def test_a_block_read_during_a_purge_is_overwritten_after_the_read() -> None:
    held = catalog()
    store(Transactions(held), "a")
    read = held.open_read([key("a")])
    held.purge("acme")
    assert held.take_cleared() == []
    held.close_read(read)
    assert [(item.slot, item.scrub) for item in held.take_cleared()] == [(0, True)]


def test_after_a_restart_the_newer_of_two_copies_is_used_and_old_blocks_are_not() -> None:
    held = catalog()
    header = BlockHeader(facts("a"), incarnation=1, sequence=5, expires_at=1100.0, pinned_until=1050.0)
    headers = [
        (0, header),
        (1, msgspec.structs.replace(header, incarnation=2, sequence=1)),
        (2, BlockHeader(facts("late"), expires_at=1000.0)),
        (3, BlockHeader(facts("freed", tenant="gone"), stored=False, expires_at=2000.0)),
    ]
    held.restore(headers, now=10.0, epoch_offset_s=1000.0)
    record = held.find(key("a"))
    assert record is not None
    assert (record.slots, record.expires_at, record.pinned_until) == ({SSD: 1}, 100.0, 50.0)
    assert len(held) == 1
    held.purge("gone")
    cleared = held.take_cleared()
    assert [item.slot for item in cleared] == [3]
    held.slot_cleared(cleared[0])
    held.check()


def test_pages_cover_all_committed_blocks() -> None:
    held = catalog()
    store(Transactions(held), *range(5))
    first = held.page(0, 3)
    rest = held.page(first[-1].number, 3)
    assert [record.facts.key for record in [*first, *rest]] == [key(number) for number in range(5)]


def test_a_slot_being_cleared_by_its_owner_is_accounted_for() -> None:
    held = catalog(dram_slots=2)
    store(Transactions(held), "a")
    record = held.find(key("a"))
    assert record is not None
    held.forget(record)
    (slot,) = held.take_cleared()
    held.check()
    held.slot_cleared(slot)
    held.check()


def held(*blocks: BlockFacts) -> BlockCatalog:
    """Return a catalog with these blocks, all pinned until 60 s."""
    made = catalog(dram_slots=32)
    for block in blocks:
        record = made.create(block, 0.0)
        assert record is not None
        made.publish(record)
        made.unlock(record)
        assert made.pin([block.key], 60.0, 0.0) == 1
    return made


def pins(of: BlockCatalog) -> list[PinnedPrefix]:
    of.check()
    return pinned_prefixes(of.usage.pinned())


def test_a_prompt_is_one_pin_under_its_last_block() -> None:
    blocks = held(facts("a"), facts("b", "a"), facts("c", "b"))
    (pin,) = pins(blocks)
    assert (pin.name, pin.tenant, pin.tokens, pin.size, pin.until) == (key("c"), "acme", 48, 3000, 60.0)
    blocks.unpin(pin.keys)
    assert pins(blocks) == []


def test_prompts_with_a_common_prefix_share_its_blocks() -> None:
    blocks = held(facts("a"), facts("b", "a"), facts("c", "b"), facts("d", "b"), facts("e", "d"))
    longer, shorter = pins(blocks)
    assert (longer.name, longer.tokens, longer.size) == (key("e"), 64, 2000)
    assert (shorter.name, shorter.tokens, shorter.size) == (key("c"), 48, 1000)
    blocks.unpin(longer.keys)
    (left,) = pins(blocks)
    assert (left.name, left.tokens, left.size) == (key("c"), 48, 3000)


def test_payloads_of_several_ranks_are_one_pin() -> None:
    ranks = [msgspec.structs.replace(facts(name), routing_key=7) for name in ("rank 0", "rank 1")]
    (pin,) = pins(held(*ranks))
    assert (pin.name, pin.tokens, pin.size) == ((7).to_bytes(8, "big"), 16, 2000)
    assert sorted(pin.keys) == sorted(rank.key for rank in ranks)


def test_a_pin_that_ended_or_lost_its_block_is_not_listed() -> None:
    blocks = held(facts("a"), facts("b"), facts("c"))
    left = blocks.find(key("a"))
    assert left is not None
    blocks.forget(left)
    blocks.unpin([key("b")])
    assert [pin.name for pin in pins(blocks)] == [key("c")]
    blocks.expire(61.0)
    assert pins(blocks) == []


def test_blocks_with_cyclic_parents_are_harmless() -> None:
    circle = held(facts("a", "b"), facts("b", "a"), facts("c", "b"))
    (pin,) = pins(circle)
    assert pin.name == key("c")
    assert pin.keys == (key("c"),)
