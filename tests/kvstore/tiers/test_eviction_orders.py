"""The contract of every eviction rule, and the specifics of each."""

from __future__ import annotations

import random

import pytest

from kvstore.tiers.eviction import EVICTIONS, EvictionOrder, eviction_order
from tests.kvstore.kv_blocks import key

SLOTS = 12


def order_of(name: str, seed: int = 1) -> EvictionOrder:
    return eviction_order(name, SLOTS, random.Random(seed))


def fill(order: EvictionOrder, *chain: object) -> None:
    above = b""
    for name in chain:
        order.add(key(name), above)
        order.set_evictable(key(name), True)
        above = key(name)


@pytest.mark.parametrize("name", EVICTIONS)
@pytest.mark.parametrize("seed", range(6))
def test_only_evictable_leaves_are_evicted(name: str, seed: int) -> None:
    rng, order = random.Random(seed), order_of(name, seed)
    parents: dict[bytes, bytes] = {}
    free: set[bytes] = set()
    for step in range(600):
        held = sorted(parents)
        choice = rng.random()
        if choice < 0.4 and len(held) < SLOTS:
            above = rng.choice([b"", key("elsewhere"), *held])
            parents[key(step)] = above
            order.add(key(step), above)
        elif choice < 0.6 and held:
            one, evictable = rng.choice(held), rng.random() < 0.7
            order.set_evictable(one, evictable)
            (free.add if evictable else free.discard)(one)
        elif choice < 0.8 and held:
            order.touch([*rng.sample(held, rng.randint(1, len(held))), key("unknown")])
        else:
            victim = order.victim()
            leaves = {item for item in free if item not in parents.values()}
            assert (victim in leaves) if leaves else (victim is None)
            if victim is not None:
                order.remove(victim)
                del parents[victim]
                free.discard(victim)
        assert len(order) == len(free)
        order.check()


@pytest.mark.parametrize("name", EVICTIONS)
def test_blocks_with_cyclic_parents_can_still_be_evicted(name: str) -> None:
    order = order_of(name)
    order.add(key("a"), key("b"))
    order.add(key("b"), key("a"))
    order.remove(key("a"))
    order.add(key("a"), key("b"))
    for item in "ab":
        order.set_evictable(key(item), True)
    for _ in "ab":
        victim = order.victim()
        assert victim is not None
        order.remove(victim)
        order.check()


def test_leaf_lru_evicts_the_tail_of_the_longest_unused_prompt() -> None:
    order = order_of("leaf_lru")
    fill(order, "a1", "a2", "a3")
    fill(order, "b1", "b2")
    order.touch([key("a1"), key("a2"), key("a3")])
    left = []
    while (victim := order.victim()) is not None:
        order.remove(victim)
        left.append(victim)
    assert left == [key(name) for name in ("b2", "b1", "a3", "a2", "a1")]


def test_rlt_spares_blocks_used_in_this_phase() -> None:
    for seed in range(20):
        order = order_of("rlt", seed)
        for number in range(SLOTS):
            fill(order, number)
        fill(order, "one more")
        # All marks were used up: a new phase has begun, in which only the last block and the touched ones are marked.
        order.touch([key(0), key(1)])
        assert order.victim() not in (key("one more"), key(0), key(1))


def test_rlt_draws_randomly() -> None:
    drawn = set()
    for seed in range(40):
        order = order_of("rlt", seed)
        for number in range(4):
            fill(order, number)
        drawn.add(order.victim())
    assert len(drawn) == 4


def test_an_unknown_rule_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="leaf_lru, rlt"):
        order_of("mru")
