import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvstore.keys.block_keys import token_block_keys
from simulator.engine_cache.evictions import EVICTIONS, UnknownEvictionError, eviction_rule
from simulator.engine_cache.prefix_cache import PrefixCache
from tests.simulator.engine_cache.token_paths import random_paths

PROMPTS = st.lists(st.integers(0, 2), min_size=1, max_size=6)


def keys_of(prompt: list[int]) -> tuple[int, ...]:
    return token_block_keys(1, prompt, 1)


class CacheUnderRandomUse(RuleBasedStateMachine):
    """Invariants hold under any use, and evictions are exactly the blocks that disappeared."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = PrefixCache(8)
        self.held: set[int] = set()
        self.pins: list[tuple[int, ...]] = []

    @rule(prompt=PROMPTS)
    def insert(self, prompt: list[int]) -> None:
        keys = keys_of(prompt)
        evicted = self.cache.insert(keys)
        assert not set(evicted) & set(keys)
        assert not {key for pinned in self.pins for key in pinned} & set(evicted)
        self.held = (self.held - set(evicted)) | set(keys[: self.cache.match(keys)])

    @rule(prompt=PROMPTS)
    def pin(self, prompt: list[int]) -> None:
        keys = keys_of(prompt)
        held = self.cache.pin(keys)
        if held:
            self.pins.append(keys[:held])

    @precondition(lambda self: self.pins)
    @rule()
    def unpin(self) -> None:
        self.cache.unpin(self.pins.pop())

    @invariant()
    def it_checks(self) -> None:
        self.cache.check()
        assert {key for key in self.held if key in self.cache} == self.held
        assert len(self.cache) == len(self.held)
        assert self.cache.pinned_blocks == len({key for pinned in self.pins for key in pinned})


TestCacheUnderRandomUse = CacheUnderRandomUse.TestCase
TestCacheUnderRandomUse.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)


def test_the_least_recently_used_leaf_is_evicted_first() -> None:
    cache = PrefixCache(4)
    old, new = keys_of([1, 2]), keys_of([3, 4])
    cache.insert(old)
    cache.insert(new)
    cache.insert(old)
    assert cache.insert(keys_of([5])) == [new[1]]


def test_a_chain_is_evicted_from_its_tail() -> None:
    cache = PrefixCache(3)
    chain = keys_of([1, 2, 3])
    cache.insert(chain)
    assert cache.insert(keys_of([7, 8])) == [chain[2], chain[1]]


def test_a_recently_used_parent_outlives_an_older_leaf_elsewhere() -> None:
    cache = PrefixCache(4)
    shared, other = keys_of([1]), keys_of([9])
    cache.insert(keys_of([1, 2]))
    cache.insert(other)
    cache.insert(shared)
    cache.insert(keys_of([5]))
    assert cache.insert(keys_of([6, 7])) == [keys_of([1, 2])[1], other[0]]
    assert cache.match(shared) == 1


def test_a_prompt_longer_than_the_cache_keeps_its_head() -> None:
    cache = PrefixCache(2)
    keys = keys_of([1, 2, 3])
    assert cache.insert(keys) == []
    assert cache.match(keys) == 2


def test_unpinning_an_unpinned_block_is_an_error() -> None:
    cache = PrefixCache(2)
    cache.insert(keys_of([1]))
    with pytest.raises(ValueError, match="not pinned"):
        cache.unpin(keys_of([1]))


class PlainLeafLru:
    """The plainest form of the rule: each eviction scans every leaf and takes the least recently used."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.parent: dict[int, int | None] = {}
        self.used: dict[int, int] = {}
        self.uses = 0

    def insert(self, keys: tuple[int, ...]) -> list[int]:
        evicted = []
        path: list[int] = []
        for key in keys:
            if key not in self.parent and len(self.parent) >= self.capacity:
                inner = set(self.parent.values())
                leaves = [item for item in self.parent if item not in inner and item not in keys]
                if not leaves:
                    break
                oldest = min(leaves, key=self.used.__getitem__)
                evicted.append(oldest)
                del self.parent[oldest]
            self.parent.setdefault(key, path[-1] if path else None)
            path.append(key)
        for key in reversed(path):
            self.uses += 1
            self.used[key] = self.uses
        return evicted


@given(st.lists(PROMPTS, max_size=60), st.integers(1, 9))
def test_evictions_equal_those_of_a_full_scan_of_leaves(prompts: list[list[int]], capacity: int) -> None:
    cache, plain = PrefixCache(capacity), PlainLeafLru(capacity)
    for prompt in prompts:
        assert cache.insert(keys_of(prompt)) == plain.insert(keys_of(prompt))
        cache.check()
    assert {key for key in plain.parent if key in cache} == set(plain.parent)


@pytest.mark.parametrize("name", EVICTIONS)
def test_the_same_seed_produces_the_same_evictions(name: str) -> None:
    stories = []
    for _ in range(2):
        cache = PrefixCache(15, eviction_rule(name, random.Random(4)))
        stories.append([cache.insert(path) for path in random_paths(1, 200)])
    assert stories[0] == stories[1]


@pytest.mark.parametrize("name", EVICTIONS)
def test_only_the_necessary_blocks_are_evicted(name: str) -> None:
    cache = PrefixCache(15, eviction_rule(name, random.Random(4)))
    for path in random_paths(2, 200):
        before, held = len(cache), cache.match(path)
        evicted = cache.insert(path)
        assert len(evicted) == max(0, before + len(path) - held - 15)
        assert cache.match(path) == len(path)


@pytest.mark.parametrize("name", EVICTIONS)
def test_pinned_blocks_stay_and_blocks_that_do_not_fit_are_skipped(name: str) -> None:
    cache = PrefixCache(4, eviction_rule(name, random.Random(0)))
    cache.insert((1, 2, 3))
    cache.pin((1, 2, 3))
    assert cache.insert((7, 8)) == []
    assert (cache.match((1, 2, 3)), cache.match((7, 8))) == (3, 1)
    assert cache.insert((9,)) == [7]
    cache.check()
    cache.unpin((1, 2, 3))
    assert sorted(cache.insert((4, 5, 6))) == [2, 3, 9]
    assert cache.match((1,)) == 1
    cache.check()
    cache.clear()
    cache.check()
    assert cache.insert((4, 5, 6, 7)) == []


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownEvictionError, match="'mru' is unknown; known are lru, rlt"):
        eviction_rule("mru", random.Random(0))
