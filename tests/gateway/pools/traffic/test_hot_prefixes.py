"""Work by prefix and engine over a short time, in bounded memory.

The tree of shared prefixes: its runs of blocks, its counts and its limits.
"""

from __future__ import annotations

from random import Random

from gateway.pools.traffic.hot_prefixes import MAX_KEYS, SHOWN, SPAN_S, HotPrefixes
from gateway.pools.traffic.prefix_icicle import MAX_BLOCKS, icicle
from routing.values.decision import Decision


def decision(engine_id: str, compute_s: float, hit: int = 0) -> Decision:
    return Decision("r", "p", engine_id, 1, "dual_map", "fifo", 1, "x", 1000, hit, 0.0, compute_s, 0.0)


def test_work_is_summed_per_prefix_and_engine_busiest_first() -> None:
    prefixes = HotPrefixes()
    prefixes.dispatched(7, decision("a", 1.0, 100), 0, 1.0)
    prefixes.dispatched(7, decision("b", 2.0, 300), 50, 2.0)
    prefixes.dispatched(9, decision("a", 0.5), 0, 2.0)
    first, second = prefixes.top(3.0)
    assert (first.key, first.work_s_by_engine) == (f"{7:016x}", {"a": 1.0, "b": 2.0})
    assert (first.tokens, first.recomputed_tokens) == (300, 50)
    assert second.key == f"{9:016x}"


def test_work_is_forgotten_after_two_spans() -> None:
    prefixes = HotPrefixes()
    prefixes.dispatched(7, decision("a", 1.0), 0, 100.0)
    assert prefixes.top(100.0 + SPAN_S)[0].work_s_by_engine == {"a": 1.0}
    prefixes.dispatched(8, decision("a", 1.0), 0, 100.0 + SPAN_S + 1)
    assert len(prefixes.top(100.0 + SPAN_S + 2)) == 2
    assert [prefix.key for prefix in prefixes.top(100.0 + 2 * SPAN_S + 1)] == [f"{8:016x}"]
    assert prefixes.top(500.0) == ()


def test_stored_and_displayed_keys_are_bounded() -> None:
    prefixes = HotPrefixes()
    for key in range(MAX_KEYS + 100):
        prefixes.dispatched(key, decision("a", 1.0), 0, 1.0)
    prefixes.dispatched(5, decision("a", 9.0), 0, 1.0)
    top = prefixes.top(1.0)
    assert (len(top), top[0].key) == (SHOWN, f"{5:016x}")


def prompt(*names: str) -> tuple[int, ...]:
    """Return chained keys: each identifies the whole prefix."""
    return tuple(hash(names[: length + 1]) & (2**64 - 1) for length in range(len(names)))


def test_prompts_stay_together_until_they_diverge() -> None:
    shared = ("system", "tools", "manual")
    prefixes = icicle([(prompt(*shared, "a", "x"), 3), (prompt(*shared, "b"), 2), (prompt("other"), 4)])
    shape = [(item.parent, item.level, item.first_block, item.last_block, item.requests) for item in prefixes]
    assert shape == [(-1, 0, 1, 3, 5), (-1, 0, 1, 1, 4), (0, 1, 4, 5, 3), (0, 1, 4, 4, 2)]
    assert prefixes[0].key == prompt(*shared)[-1]


def test_prefixes_of_a_single_request_are_not_nodes() -> None:
    assert icicle([(prompt("a"), 1), (prompt("b"), 1)]) == []
    assert icicle([]) == []


def test_a_prompt_that_is_a_prefix_of_another_ends_its_run() -> None:
    prefixes = icicle([(prompt("a", "b"), 2), (prompt("a", "b", "c"), 2)])
    assert [(item.last_block, item.requests) for item in prefixes] == [(2, 4), (3, 2)]


def test_the_widest_nodes_are_kept_and_parents_precede_children() -> None:
    rng = Random(3)
    prompts = [
        (prompt(*(f"{level}:{rng.randrange(3)}" for level in range(rng.randint(1, 90)))), rng.randint(1, 5))
        for _ in range(400)
    ]
    prefixes = icicle(prompts, most=30)
    assert len(prefixes) == 30
    for at, item in enumerate(prefixes):
        assert item.parent < at
        assert item.first_block <= item.last_block <= MAX_BLOCKS
        children = [child for child in prefixes if child.parent == at]
        assert sum(child.requests for child in children) <= item.requests
        if item.parent >= 0:
            assert item.first_block == prefixes[item.parent].last_block + 1
            assert item.level == prefixes[item.parent].level + 1
        assert item.requests == sum(weight for keys, weight in prompts if item.key in keys)
