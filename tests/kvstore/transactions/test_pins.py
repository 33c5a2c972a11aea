"""Pins as people see them: one per pinned prefix, each with its own blocks."""

from __future__ import annotations

import msgspec

from kvstore.tiers.block_facts import BlockFacts
from kvstore.transactions.block_catalog import BlockCatalog
from kvstore.transactions.pins import PinnedPrefix, pinned_prefixes
from tests.kvstore.kv_blocks import catalog, facts, key


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
