"""Comparison of a text's blocks with an engine's events, and the message for each mismatch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.preflight.checks import EnginePreflight, PreflightFailedError, PreflightSubject
from controlplane.fleet.preflight.events import AnnouncedBlocks
from kvstore.events.kv_events import BlockRemoved, BlockStored, EventBatch, KvEvent, encode_batch
from kvstore.keys.block_keys import key_seed, token_block_keys

SEED = key_seed(b"secret", "m")
BLOCK = 4
TOKENS = list(range(100, 113))
WANTED = token_block_keys(SEED, TOKENS, BLOCK)


def stored(first: int, count: int, *, parent: int | None, size: int = BLOCK, offset: int = 0) -> BlockStored:
    """Return the event for the blocks from `first` on, under the engine's own hashes."""
    span = [token + offset for token in TOKENS[first * size : (first + count) * size]]
    return BlockStored([1000 + first + step for step in range(count)], parent, span, size)


def announced(*events: KvEvent) -> AnnouncedBlocks:
    blocks = AnnouncedBlocks(SEED, WANTED, BLOCK)
    blocks.take(encode_batch(EventBatch(1.0, list(events), 0)))
    return blocks


def test_all_blocks_of_the_text_make_it_complete() -> None:
    assert announced(stored(0, 3, parent=None)).complete


def test_blocks_may_arrive_in_several_events_among_those_of_others() -> None:
    other = BlockStored([7], None, [1, 2, 3, 4], BLOCK)
    blocks = announced(other, stored(0, 1, parent=None), BlockRemoved([7]), stored(1, 2, parent=1000))
    assert blocks.complete
    assert blocks.events == 3


@pytest.mark.parametrize(
    "event",
    [stored(0, 2, parent=None), stored(1, 2, parent=None), stored(0, 3, parent=None, offset=1), BlockRemoved([1])],
)
def test_missing_or_mismatched_blocks_leave_it_incomplete(event: KvEvent) -> None:
    assert not announced(event).complete


def test_other_block_sizes_and_unreadable_batches_are_counted() -> None:
    blocks = announced(stored(0, 1, parent=None, size=8))
    blocks.take(b"garbage")
    assert (blocks.complete, blocks.foreign_sizes, blocks.unreadable) == (False, {8}, 1)


def test_invalid_events_and_other_groups_and_tiers_are_ignored() -> None:
    hashes = [1000, 1001, 1002]
    state = BlockStored(hashes[2:], None, TOKENS[:12], BLOCK, group_idx=1, kv_cache_spec_kind="mamba")
    copies = BlockStored(hashes, None, [], BLOCK, medium="CPU")
    odd = BlockStored([9], None, [1], BLOCK)
    blocks = announced(state, copies, odd, stored(0, 3, parent=None))
    assert (blocks.complete, blocks.events, blocks.unreadable) == (True, 1, 0)
    assert not announced(state, copies).complete


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_ignored(data: bytes) -> None:
    blocks = AnnouncedBlocks(SEED, WANTED, BLOCK)
    blocks.take(data)
    assert not blocks.complete


def said_about(blocks: AnnouncedBlocks) -> PreflightFailedError:
    subject = PreflightSubject("http://10.0.0.1:8000", "http://10.0.0.1:8000", "m", True, BLOCK, 4096)
    session: Any = None
    return EnginePreflight(subject, session)._disagreement(blocks)


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ((), "No event within 3\u202fs of a request with 2 new blocks."),
        (
            (stored(0, 1, parent=None, size=8),),
            "Same text gives different blocks (events: 8 tokens per block, pool: 4).",
        ),
        ((stored(0, 3, parent=None, offset=1),), "Same text gives different blocks: no event matches the tokens"),
    ],
)
def test_each_kind_of_mismatch_has_its_own_message(events: tuple[KvEvent, ...], sentence: str) -> None:
    failure = said_about(announced(*events))
    assert failure.sentence.startswith(sentence)
    assert failure.remedy
