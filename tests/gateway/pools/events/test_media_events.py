"""Events of blocks with media, in the form of vLLM 0.32 (v1/core/kv_cache_utils.py, to_event_extra_keys)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pools.events.event_ledger import EXACT
from kvstore.events.event_salt import Medium, media_of
from kvstore.events.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, decode_batch, encode_batch
from kvstore.keys.block_keys import media_block_key, token_block_keys
from simulator.engine_server.request_bodies import PlacedMedium, extra_keys
from tests.gateway.pools.events.test_event_ledger import batch, seed_of, whole

BLOCK = 2
TOKENS = [1, 2, 3, 9, 9, 9, 9, 4, 5, 6]
"""An image of four tokens begins in the middle of the second block and ends in that of the fourth."""
IMAGE: list[Any] = [None, [["cat", 1]], [["cat", -1]], [["cat", -3]], None]


def key(name: str, index: int, lora: str = "") -> int:
    return media_block_key(seed_of("", lora), name, index)


def event(extra: list[Any] | None, **fields: Any) -> BlockStored:
    return BlockStored([1, 2, 3, 4, 5], None, TOKENS, BLOCK, extra_keys=extra, **fields)


def text(domain: str = "", lora: str = "") -> set[int]:
    """Return the keys of the text before the image."""
    return set(token_block_keys(seed_of(domain, lora), TOKENS[:2], BLOCK))


@pytest.mark.parametrize(
    "extra",
    [IMAGE, [item and [["mm", *item[0]]] for item in IMAGE]],
    ids=["as events have it", "as blocks are hashed"],
)
def test_a_medium_is_keyed_by_its_name_and_the_text_before_it_by_its_tokens(extra: list[Any]) -> None:
    book, held, _ = whole(batch(event(extra)))
    image = {key("cat", index) for index in range(3)}
    assert held.keys == text() | image
    assert held.media == {"cat": 3}
    assert book.trust.grade == EXACT
    # vLLM drops the end of a prompt first.
    book.live(1, batch(BlockRemoved([5]), BlockRemoved([4])))
    assert held.keys == text() | image - {key("cat", 2)}
    book.live(2, batch(BlockRemoved([3, 2, 1])))
    assert held.keys == set()
    book.check()


def test_a_medium_of_two_prompts_is_removed_with_the_last_one() -> None:
    twin = BlockStored([7], None, [8, 9], BLOCK, extra_keys=[[["cat", 1]]])
    book, held, _ = whole(batch(event(IMAGE), twin))
    book.live(1, batch(BlockRemoved([2])))
    assert key("cat", 0) in held.keys
    book.live(2, batch(BlockRemoved([7])))
    assert key("cat", 0) not in held.keys


@pytest.mark.parametrize("salt", ["salt", ["cache_salt", "salt"]])
def test_a_salt_and_an_adapter_next_to_media_are_read(salt: object) -> None:
    first = [["sql", salt], *(["sql", *(item or ())] for item in IMAGE[1:])]
    book, held, _ = whole(batch(event(first, lora_name="sql", lora_id=1)))
    assert held.keys == text("salt", "sql") | {key("cat", index, "sql") for index in range(3)}
    assert book.counts["salted"] == 1


def test_a_salt_on_a_prompt_that_begins_with_an_image_shows_that_events_carry_salts() -> None:
    stored = BlockStored([1, 2], None, [9, 9, 9, 9], BLOCK, extra_keys=[[["cat", 0], "salt"], [["cat", -2]]])
    book, held, _ = whole(batch(stored))
    assert held.keys == {key("cat", 0), key("cat", 1)}
    assert book.counts["salted"] == 1


def test_several_media_in_one_block_are_all_stored_and_all_removed() -> None:
    stored = BlockStored([1], None, [9, 9], BLOCK, extra_keys=[[["cat", 0], ["dog", 1]]])
    book, held, _ = whole(batch(stored))
    assert held.keys == {key("cat", 0), key("dog", 0)}
    book.live(1, batch(BlockRemoved([1])))
    assert held.keys == set()


def test_blocks_after_a_medium_get_no_keys() -> None:
    child = BlockStored([6, 7], 5, [1, 2, 3, 4], BLOCK, extra_keys=[None, None])
    _, held, _ = whole(batch(event(IMAGE), child))
    assert held.keys == text() | {key("cat", index) for index in range(3)}


def test_a_cleared_cache_holds_no_media() -> None:
    book, held, _ = whole(batch(event(IMAGE)))
    book.live(1, batch(AllBlocksCleared()))
    assert held.keys == set()
    book.live(2, batch(event(IMAGE)))
    assert key("cat", 0) in held.keys


@pytest.mark.parametrize("extra", [[["cat", True]], [[5, 1]], [["cat", 1, 2]], [["cat"]], ["cat", 1], [[]], 7])
def test_extra_keys_without_a_medium_are_ignored(extra: object) -> None:
    assert media_of(BlockStored([1], None, [9, 9], BLOCK, extra_keys=[extra])) == []


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=4),
    st.integers(1, 5),
    st.integers(0, 12),
    st.booleans(),
)
def test_every_medium_has_one_key_per_block_that_contains_it(
    gaps: list[tuple[int, int]], size: int, after: int, split: bool
) -> None:
    """However an engine splits the prompt over events, each medium covers consecutive blocks from its first one on."""
    media, end = [], 0
    for number, (gap, length) in enumerate(gaps):
        media.append(PlacedMedium(f"m{number}", end + gap, length))
        end += gap + length
    blocks = (end + after) // size
    media_keys: set[tuple[str, int]] = set()
    cut = blocks // 2 if split else blocks
    for first, last in ((0, cut), (cut, blocks)):
        extra: list[Any] = [extra_keys(media, index * size, size) or None for index in range(first, last)]
        stored = BlockStored(list(range(first, last)), None, [9] * (last - first) * size, size, extra_keys=extra)
        read = decode_batch(encode_batch(EventBatch(0.0, [stored]))).events[0]
        assert isinstance(read, BlockStored)
        media_keys |= {
            (item.name, item.position) for there in media_of(read) for item in there if isinstance(item, Medium)
        }
    whole_blocks = blocks * size
    assert media_keys == {
        (item.name, token // size - item.offset // size)
        for item in media
        for token in range(item.offset, min(item.offset + item.length, whole_blocks))
    }
