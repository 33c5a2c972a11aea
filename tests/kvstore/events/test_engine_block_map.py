from hypothesis import given
from hypothesis import strategies as st

from kvstore.events.engine_block_map import EngineBlockMap
from kvstore.events.kv_events import BlockRemoved, BlockStored
from kvstore.keys.block_keys import token_block_keys

TOKENS = list(range(8))


def stored(hashes: list[int | bytes], tokens: list[int], parent: int | bytes | None = None) -> BlockStored:
    return BlockStored(hashes, parent, tokens, 2)


def test_engine_hashes_become_the_keys_of_their_tokens() -> None:
    blocks = EngineBlockMap()
    first = blocks.stored(stored([70, 71], TOKENS[:4]), 1)
    second = blocks.stored(stored([72, b"\x01" * 32], TOKENS[4:], parent=71), 1)
    assert tuple(first + second) == token_block_keys(1, TOKENS, 2)


def test_a_block_stored_three_times_is_removed_after_three_removals() -> None:
    blocks = EngineBlockMap()
    for _ in range(3):
        blocks.stored(stored([5], TOKENS[:2]), 1)
    assert blocks.removed(BlockRemoved([5])) == []
    assert blocks.removed(BlockRemoved([5])) == []
    assert blocks.removed(BlockRemoved([5])) == list(token_block_keys(1, TOKENS[:2], 2))
    assert blocks.removed(BlockRemoved([5])) == []


def test_a_key_of_two_hashes_stays_until_both_are_removed() -> None:
    blocks = EngineBlockMap()
    blocks.stored(stored([5], TOKENS[:2]), 1)
    blocks.stored(stored([6], TOKENS[:2]), 1)
    assert blocks.removed(BlockRemoved([5])) == []
    assert len(blocks.removed(BlockRemoved([6]))) == 1


def test_a_block_with_an_unknown_parent_is_counted_and_gets_no_key() -> None:
    blocks = EngineBlockMap()
    assert blocks.stored(stored([5], TOKENS[:2], parent=99), 1) == []
    assert blocks.orphans == 1


def test_keys_dropped_at_the_limit_are_reported_once() -> None:
    blocks = EngineBlockMap(max_blocks=2)
    keys = [blocks.stored(stored([number], [number, 0]), 1)[0] for number in range(4)]
    assert blocks.take_dropped() == keys[:2]
    assert blocks.take_dropped() == []


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=80))
def test_counts_and_the_limit_hold_under_any_events(events: list[tuple[bool, int]]) -> None:
    blocks = EngineBlockMap(max_blocks=6)
    for is_store, number in events:
        if is_store:
            blocks.stored(stored([number], [number % 5, 0]), 1)
        else:
            blocks.removed(BlockRemoved([number]))
        blocks.check()
