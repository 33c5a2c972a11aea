"""A prefix is offered to the node once, and again when the node may have lost it."""

from __future__ import annotations

from kvstore.connector.offered_blocks import OfferedBlocks
from tests.kvstore.connector.engine_blocks import chain


def test_a_block_is_not_offered_again_before_its_interval_ends() -> None:
    offered, blocks = OfferedBlocks(10.0), chain("p", 2)
    offered.add(blocks[:1], 0.0)
    assert [offered.has(block, 9.9) for block in blocks] == [True, False]
    assert not offered.has(blocks[0], 10.0)


def test_the_newest_offers_are_kept_within_the_limit() -> None:
    offered, blocks = OfferedBlocks(10.0, max_blocks=3), chain("p", 4)
    offered.add(blocks[:3], 0.0)
    offered.add([blocks[0], blocks[3]], 1.0)
    assert [offered.has(block, 2.0) for block in blocks] == [True, False, True, True]
    assert len(offered) == 3


def test_blocks_that_the_node_did_not_store_are_forgotten() -> None:
    offered, blocks = OfferedBlocks(10.0), chain("p", 2)
    offered.add(blocks, 0.0)
    offered.drop([blocks[1], b"unknown"])
    assert [offered.has(block, 1.0) for block in blocks] == [True, False]
