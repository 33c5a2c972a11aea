"""Events of hybrid models lead to the hits that the engine's coordinator computes.

The engine here is a small model of vLLM's block pool and hybrid coordinator, and the captures are written from their
sources (`vllm/v1/core/block_pool.py`, `kv_cache_coordinator.py`, `single_type_kv_cache_manager.py`). Real engines of
hybrid models are asked in tests/vllm/test_hybrid_model.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.settings import EventSettings
from gateway.pools.events.event_ledger import BLIND, DEGRADED, EXACT, EventLedger
from kvstore.events.cache_groups import PartChange
from kvstore.index.cache_tails import STATE, Tail
from kvstore.index.prefix_index import PrefixIndex
from kvstore.keys.block_keys import media_block_key, token_block_keys
from routing.ledger.in_flight_blocks import InFlightBlocks

SEED, BLOCK, TARGET, OTHER = 7, 2, 3, 1
Prompt = tuple[int, ...]
"""One number for each block."""


class Indexed:
    """Feed one target of a prefix index, as a pool does; another target holds every block it is given."""

    def __init__(self) -> None:
        self.index = PrefixIndex()
        self.restarts = 0

    def stored(self, keys: Sequence[int], parent: int | None = None) -> None:
        self.index.store(TARGET, keys)
        self.index.store(OTHER, keys)

    def removed(self, keys: Sequence[int]) -> None:
        self.index.remove(TARGET, keys)

    def tail_declared(self, tail: Tail) -> None:
        self.index.tails.declare(TARGET, tail)

    def tail_changed(self, change: PartChange) -> None:
        self.index.change_tail(TARGET, *change)

    def tier_changed(self, tier: str, stored: bool, keys: Sequence[int]) -> None:
        self.index.change_tier(TARGET, tier, stored, keys)

    def medium_stored(self, name: str, blocks: int) -> None:
        """Ignore media, which these models do not have."""

    def cleared(self) -> None:
        self.index.clear(TARGET)

    def restarted(self) -> None:
        self.restarts += 1
        self.cleared()

    def hit(self, prompt: Prompt, target: int = TARGET) -> int:
        return self.index.match(keys_of(prompt), 1 << TARGET | 1 << OTHER).blocks(target)


class Group(NamedTuple):
    kind: str
    window: int | None = None

    def longest(self, held: Sequence[bool], limit: int) -> int:
        """Return the longest prefix of at most `limit` blocks that this group alone can serve."""
        if self.kind == "mamba":
            return next((end for end in range(limit, 0, -1) if held[end - 1]), 0)
        if self.kind == "full_attention":
            return next((at for at in range(limit) if not held[at]), limit)
        assert self.window is not None
        need = -(-(self.window - 1) // BLOCK)
        return next((end for end in range(limit, 0, -1) if all(held[max(0, end - need) : end])), 0)


class HybridEngine:
    """Model the engine: blocks per group, the coordinator's hit, and the events that the pool publishes."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self.cached: list[Counter[Prompt]] = [Counter() for _ in groups]
        self.events: list[dict[str, Any]] = []

    def hit(self, prompt: Prompt) -> int:
        """Return the fixed point: each group in turn accepts or shortens the candidate until all accept it."""
        candidate = len(prompt)
        while True:
            before = candidate
            for group, cached in zip(self.groups, self.cached, strict=True):
                held = [cached[prompt[: end + 1]] > 0 for end in range(len(prompt))]
                candidate = group.longest(held, candidate)
            if candidate == before:
                return candidate

    def run(self, prompt: Prompt, masks: Sequence[int]) -> None:
        """Compute the blocks that are not hits. Sparse groups keep and list only the blocks of their mask."""
        hit = self.hit(prompt)
        if hit == len(prompt):
            return
        for number, group in enumerate(self.groups):
            dense = group.kind == "full_attention"
            ends = [end for end in range(hit + 1, len(prompt) + 1) if dense or masks[number] >> end & 1]
            self.cached[number].update(prompt[:end] for end in ends)
            self.events.append(
                {
                    "type": "BlockStored", "block_hashes": [hash_of(prompt[:end]) for end in ends],
                    "parent_block_hash": hash_of(prompt[:hit]) if hit else None, "token_ids": tokens_of(prompt[hit:]),
                    "block_size": BLOCK, "lora_id": None, "medium": "GPU", "lora_name": None,
                    "extra_keys": [None] * len(ends) or None, "group_idx": number, "kv_cache_spec_kind": group.kind,
                    "kv_cache_spec_sliding_window": group.window,
                }
            )  # fmt: skip

    def evict(self, group: int, pick: int) -> None:
        held = sorted(self.cached[group].elements())
        if held:
            block = held[pick % len(held)]
            self.cached[group][block] -= 1
            self.events.append(
                {"type": "BlockRemoved", "block_hashes": [hash_of(block)], "medium": "GPU", "group_idx": group}
            )

    def publish(self) -> bytes:
        events, self.events = self.events, []
        return wire(*events)


def tokens_of(prompt: Prompt) -> list[int]:
    return [token for block in prompt for token in [block] * BLOCK]


def keys_of(prompt: Prompt) -> tuple[int, ...]:
    return tuple(token_block_keys(SEED, tokens_of(prompt), BLOCK))


def hash_of(prompt: Prompt) -> int:
    return 1 + sum((block + 1) * 5**at for at, block in enumerate(prompt))


def wire(*events: Any) -> bytes:
    return msgspec.msgpack.encode([1.0, list(events), 0])


def ledger_of(sink: Indexed, **limits: int) -> EventLedger:
    ledger = EventLedger(sink, lambda *_: SEED, BLOCK, EventSettings(rebuild_blocks=4, **limits))
    ledger.start_replay()
    ledger.end_replay()
    return ledger


PROMPTS = [prompt for length in range(1, 7) for prompt in product((0, 1), repeat=length)]
FULL = Group("full_attention")
masks = st.integers(0, 127)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.sampled_from(PROMPTS), st.lists(masks, min_size=5, max_size=5)),
        st.tuples(st.just("evict"), st.integers(0, 4), st.integers(0, 200)),
        st.tuples(st.just("publish"), st.none(), st.none()),
    ),
    max_size=30,
)


def hybrids(windows: st.SearchStrategy[int]) -> st.SearchStrategy[list[Group]]:
    tails = st.lists(st.just(Group("mamba")) | windows.map(lambda item: Group("sliding_window", item)), max_size=3)
    return st.tuples(st.lists(st.just(FULL), min_size=1, max_size=2), tails).flatmap(
        lambda parts: st.permutations([*parts[0], *parts[1]])
    )


def drive(groups: Sequence[Group], steps: Sequence[tuple[str, Any, Any]]) -> tuple[HybridEngine, Indexed]:
    engine, sink = HybridEngine(groups), Indexed()
    ledger = ledger_of(sink)
    # Every group publishes with the first prompt, as those of an engine do.
    first: list[tuple[str, Any, Any]] = [("run", PROMPTS[-1], [127] * 5), ("publish", None, None)]
    for name, one, other in [*first, *steps, ("publish", None, None)]:
        if name == "run":
            engine.run(one, other)
        elif name == "evict" and one < len(groups):
            engine.evict(one, other)
        elif name == "publish":
            ledger.live(ledger.counts["applied"], engine.publish())
            sink.index.check()
    assert ledger.trust.grade == EXACT
    return engine, sink


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([1, 2, 3, 4, 5, 8, 40]).flatmap(lambda window: hybrids(st.just(window))), operations)
def test_hits_equal_those_of_the_coordinator(groups: list[Group], steps: list[tuple[str, Any, Any]]) -> None:
    engine, sink = drive(groups, steps)
    assert {item: sink.hit(item) for item in PROMPTS} == {item: engine.hit(item) for item in PROMPTS}


@settings(max_examples=40, deadline=None)
@given(hybrids(st.integers(1, 12)), operations)
def test_windows_of_several_sizes_cause_no_false_hit(groups: list[Group], steps: list[tuple[str, Any, Any]]) -> None:
    engine, sink = drive(groups, steps)
    assert all(sink.hit(item) <= engine.hit(item) for item in PROMPTS)


def stored(group: int, kind: str | None, blocks: Sequence[int], prompt: Prompt, **fields: Any) -> dict[str, Any]:
    """Return a capture: the blocks of `prompt` with these ends, and the token ids of all blocks."""
    return {
        "type": "BlockStored", "block_hashes": [hash_of(prompt[:end]) for end in blocks], "parent_block_hash": None,
        "token_ids": tokens_of(prompt), "block_size": BLOCK, "lora_id": None, "medium": "GPU", "lora_name": None,
        "group_idx": group, "kv_cache_spec_kind": kind, **fields,
    }  # fmt: skip


LONG = (1, 2, 3, 4, 5, 6)
ALL = range(1, 7)


def test_a_window_model_still_hits_after_its_early_blocks_left() -> None:
    """Gemma and gpt-oss: the sliding groups come first, then full attention."""
    sink = Indexed()
    ledger = ledger_of(sink)
    window = {"kv_cache_spec_sliding_window": 5}
    ledger.live(0, wire(stored(0, "sliding_window", ALL, LONG, **window), stored(1, "full_attention", ALL, LONG)))
    assert [sink.hit(LONG[:end]) for end in ALL] == [1, 2, 3, 4, 5, 6]
    gone = {"type": "BlockRemoved", "block_hashes": [hash_of(LONG[:2])], "medium": "GPU", "group_idx": 0}
    ledger.live(1, wire(gone))
    assert [sink.hit(LONG[:end]) for end in ALL] == [1, 1, 1, 4, 5, 6]
    assert sink.hit(LONG, OTHER) == 6
    ledger.live(2, wire({**gone, "group_idx": 1}))
    assert [sink.hit(LONG[:end]) for end in ALL] == [1] * 6
    assert ledger.trust.grade == EXACT


@pytest.mark.parametrize("salt", [None, "salt"])
def test_an_image_is_a_hit_if_the_window_after_it_is_kept(salt: str | None) -> None:
    """The image is in the second and the third block, and the window needs two."""
    sink = Indexed()
    ledger = ledger_of(sink)
    image = [[["cat", 0]], [["cat", -2]]]
    window = {"kv_cache_spec_sliding_window": 5, "extra_keys": image}
    full = {"extra_keys": [salt and [salt], *image, None, None, None]}
    keys = (*keys_of(LONG[:1]), *(media_block_key(SEED, "cat", index) for index in range(2)))

    def hit(blocks: int) -> int:
        return sink.index.match(keys[:blocks], 1 << TARGET).blocks(TARGET)

    ledger.live(
        0, wire(stored(0, "sliding_window", [2, 3], LONG, **window), stored(1, "full_attention", ALL, LONG, **full))
    )
    assert [hit(blocks) for blocks in (1, 2, 3)] == [0, 0, 3]
    beginning = {"kv_cache_spec_sliding_window": 5, "extra_keys": [salt and [salt]]}
    ledger.live(1, wire(stored(0, "sliding_window", [1], LONG, **beginning)))
    assert [hit(blocks) for blocks in (1, 2, 3)] == [1, 2, 3]
    gone = {"type": "BlockRemoved", "block_hashes": [hash_of(LONG[:3])], "medium": "GPU", "group_idx": 0}
    ledger.live(2, wire(gone))
    assert [hit(blocks) for blocks in (1, 2, 3)] == [1, 2, 2]
    ledger.live(3, wire({**gone, "block_hashes": [hash_of(LONG[:2])], "group_idx": 1}))
    assert hit(3) == 1
    assert ledger.trust.grade == EXACT
    ledger.check()


def test_a_mamba_model_hits_only_at_kept_states() -> None:
    """Qwen3-Next with `--mamba-cache-mode align`: hashes of the kept states, token ids of all blocks."""
    sink = Indexed()
    ledger = ledger_of(sink)
    ledger.live(0, wire(stored(0, "full_attention", ALL, LONG), stored(1, "mamba", [3, 6], LONG)))
    assert [sink.hit((*LONG[:end], 9)) for end in ALL] == [0, 0, 3, 3, 3, 6]
    ledger.live(1, wire({"type": "BlockRemoved", "block_hashes": [hash_of(LONG)], "group_idx": 1}))
    assert sink.hit(LONG) == 3


def test_positional_events_carry_the_group_too() -> None:
    sink = Indexed()
    ledger = ledger_of(sink)
    begin = [None, tokens_of(LONG), BLOCK, None, "GPU", None, None]
    hashes = [hash_of(LONG[:end]) for end in ALL]
    ledger.live(
        0, wire(["BlockStored", hashes, *begin, 0, "full_attention"], ["BlockStored", hashes[2:3], *begin, 1, "mamba"])
    )
    assert sink.hit(LONG) == 3
    ledger.live(1, wire(["BlockRemoved", hashes[2:3], "GPU", 1]))
    assert sink.hit(LONG) == 0


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (stored(1, "chunked_local_attention", ALL, LONG), "unknown kind “chunked_local_attention”"),
        (stored(1, None, ALL, LONG), "unknown kind “unnamed”"),
        (stored(64, "mamba", [3], LONG), "cache group 64"),
        (stored(-1, "mamba", [3], LONG), "cache group 64"),
        (stored(1, "sliding_window", ALL, LONG), "unknown kind “sliding_window”"),
        ({**stored(1, "mamba", [3], LONG[:3]), "block_size": 4}, "blocks of 4 tokens"),
    ],
)
def test_an_unknown_group_degrades_its_engine_until_it_restarts(event: Any, reason: str) -> None:
    sink = Indexed()
    ledger = ledger_of(sink)
    ledger.live(0, wire(stored(0, "full_attention", ALL, LONG), event))
    assert ledger.trust.grade == DEGRADED
    assert reason in ledger.trust.reason
    assert sink.hit(LONG) == 6
    ledger.resync()
    ledger.start_replay()
    ledger.end_replay()
    assert ledger.trust.grade == EXACT


def test_full_attention_with_another_block_size_still_blinds() -> None:
    sink = Indexed()
    ledger = ledger_of(sink)
    ledger.live(0, wire({**stored(0, "full_attention", [1], LONG[:2]), "block_size": 4}))
    assert ledger.trust.grade == BLIND


def test_a_model_with_a_single_window_group_is_matched_block_by_block() -> None:
    sink = Indexed()
    ledger = ledger_of(sink)
    ledger.live(0, wire(stored(0, "sliding_window", ALL, LONG, kv_cache_spec_sliding_window=5)))
    assert sink.hit(LONG) == 6
    ledger.live(1, wire(stored(0, "sliding_window", [6], (9, 9), kv_cache_spec_sliding_window=5)))
    assert ledger.counts["sparse"] == 1
    assert ledger.trust.grade == EXACT


def test_a_group_discovered_late_voids_earlier_counts() -> None:
    sink = Indexed()
    ledger = ledger_of(sink)
    ledger.live(0, wire(stored(0, "full_attention", ALL, LONG)))
    assert sink.hit(LONG) == 6
    ledger.live(1, wire(stored(1, "full_attention", [1], LONG[:1])))
    assert sink.hit(LONG) == 0
    ledger.live(2, wire(stored(0, "full_attention", ALL, LONG), stored(1, "full_attention", ALL, LONG)))
    assert sink.hit(LONG) == 6


def test_cleared_and_restarted_engines_keep_no_tail() -> None:
    sink = Indexed()
    ledger = ledger_of(sink)
    batch = wire(stored(0, "full_attention", ALL, LONG), stored(1, "mamba", [3], LONG))
    ledger.live(0, batch)
    ledger.live(1, wire({"type": "AllBlocksCleared"}, stored(0, "full_attention", ALL, LONG)))
    assert sink.hit(LONG) == 0
    assert sink.index.tails.targets == 1 << TARGET
    ledger.live(2, batch)
    assert sink.hit(LONG) == 3
    sink.restarted()
    assert sink.index.tails.targets == 0
    assert len(sink.index.tails) == 0


def test_counts_of_a_group_are_bounded() -> None:
    sink = Indexed()
    ledger = ledger_of(sink, max_blocks=8)
    for number in range(40):
        prompt = (number,)
        ledger.live(number, wire(stored(0, "full_attention", [1], prompt), stored(1, "mamba", [1], prompt)))
        assert sink.hit(prompt) == 1
    ledger.check()
    assert sum(sink.hit((number,)) for number in range(40)) <= 8


def test_tiers_below_engine_memory_are_not_hits_in_memory() -> None:
    """vLLM offloads, then evicts: the copy in CPU memory keeps nothing among the blocks in memory."""
    sink = Indexed()
    ledger = ledger_of(sink)
    hashes = [hash_of(LONG[:end]) for end in ALL]
    below = {**stored(0, None, ALL, LONG), "token_ids": []}
    media = ["CPU", "cpu", "STORAGE", "CPU_PINNED", "DISK", "EXTERNAL", "QUANTUM"]
    plain = {**stored(0, None, ALL, LONG), "group_idx": None}
    ledger.live(0, wire(plain, *[{**below, "group_idx": None, "medium": item} for item in media]))
    assert sink.hit(LONG) == 6
    ledger.live(1, wire({"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU"}, {**below, "medium": "CPU"}))
    assert sink.hit(LONG) == 0
    ledger.live(2, wire(plain, {"type": "BlockRemoved", "block_hashes": hashes, "medium": "DISK"}))
    assert sink.hit(LONG) == 6
    assert (ledger.counts["below_engine"], ledger.counts["unknown_medium"]) == (8, 1)
    assert ledger.trust.grade == EXACT


@pytest.mark.parametrize("length", [6, 200], ids=["walked", "searched"])
def test_blocks_in_flight_are_hits_and_missing_states_are_not(length: int) -> None:
    index, keys = PrefixIndex(), tuple(range(1, length + 1))
    coming = InFlightBlocks(index)
    index.tails.declare(TARGET, Tail(states=True))
    index.store(TARGET, keys)
    index.store(OTHER, keys[:2])
    index.change_tail(TARGET, STATE, True, keys[:3])
    both = 1 << TARGET | 1 << OTHER
    assert coming.match(keys, both).groups == ((3, 1 << TARGET), (2, 1 << OTHER))
    coming.add(OTHER, keys[-1:])
    assert coming.match(keys, both).blocks(TARGET) == 3
    coming.add(TARGET, keys[-1:])
    assert coming.match(keys, both).blocks(TARGET) == length
    assert index.match(keys, both).blocks(TARGET) == 3


def test_tails_count_toward_the_index_budget() -> None:
    index = PrefixIndex(max_bytes=150 * 64)
    index.tails.declare(TARGET, Tail(states=True))
    for first in range(1, 2000, 10):
        keys = range(first, first + 10)
        index.store(TARGET, keys)
        index.change_tail(TARGET, STATE, True, [*keys, 1 << 40])
        index.check()
    assert 0 < len(index.tails) <= len(index)
