"""The ready order returns the same target as a scan of all targets, within its size limit."""

from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.ledger.node_holdings import NodeHoldings
from routing.ledger.ready_targets import SCANNED_TARGETS, ReadyOrder
from tests.routing.pools import pool, request


def holdings(**nodes: list[int]) -> NodeHoldings:
    table = NodeHoldings()
    for name, keys in nodes.items():
        table.join(name)
        table.stored(name, keys)
        table.complete(name)
    return table


def held(table: NodeHoldings, keys: list[int]) -> dict[int, list[str]]:
    return {blocks: table.names(nodes) for blocks, nodes in table.match(keys).groups}


def test_the_lookup_returns_how_much_of_a_prompt_nodes_hold() -> None:
    table = holdings(a=[1, 2, 3], b=[1], c=[9])
    assert held(table, [1, 2, 3, 4]) == {3: ["a"], 1: ["b"]}
    table.check()


def test_a_node_not_yet_read_completely_holds_nothing() -> None:
    table = NodeHoldings()
    table.join("a")
    table.stored("a", [1, 2])
    assert (held(table, [1, 2]), table.is_readable("a")) == ({}, False)
    table.complete("a")
    assert (held(table, [1, 2]), table.is_readable("a")) == ({2: ["a"]}, True)


def test_a_cleared_node_must_be_read_again() -> None:
    table = holdings(a=[1, 2], b=[1, 2])
    table.cleared("a")
    assert held(table, [1, 2]) == {2: ["b"]}
    table.stored("a", [1])
    assert held(table, [1, 2]) == {2: ["b"]}
    table.complete("a")
    assert held(table, [1, 2]) == {2: ["b"], 1: ["a"]}


def test_a_removed_node_leaves_an_empty_entry_for_the_next_one() -> None:
    table = holdings(a=[1, 2])
    table.leave("a")
    table.leave("a")
    table.join("b")
    table.complete("b")
    assert (held(table, [1, 2]), len(table)) == ({}, 0)
    table.check()


def test_reports_of_an_unknown_node_are_ignored() -> None:
    table = holdings(a=[1])
    for report in (table.cleared, table.complete, table.leave):
        report("z")
    table.stored("z", [1])
    table.removed("z", [1])
    assert held(table, [1]) == {1: ["a"]}
    assert not table.is_readable("z")


def test_random_joins_stores_and_removals_match_a_simple_table() -> None:
    random, table = Random(7), NodeHoldings()
    plain: dict[str, set[int]] = {}
    complete: set[str] = set()
    for _ in range(3000):
        node, keys = random.choice("abcde"), random.sample(range(1, 40), 3)
        match random.randrange(6):
            case 0:
                table.join(node)
                plain.setdefault(node, set())
            case 1 | 2:
                table.stored(node, keys)
                if node in plain:
                    plain[node].update(keys)
            case 3:
                table.removed(node, keys)
                plain.get(node, set()).difference_update(keys)
            case 4:
                table.complete(node)
                complete |= {node} & plain.keys()
            case _:
                leaves = random.random() < 0.5
                (table.leave if leaves else table.cleared)(node)
                complete.discard(node)
                if node in plain:
                    plain[node].clear()
                if leaves:
                    plain.pop(node, None)
        asked = random.randrange(1, 40)
        expected = sorted(name for name in complete if asked in plain[name])
        assert held(table, [asked]).get(1, []) == expected
    table.check()


def test_the_lookup_returns_how_much_of_a_prompt_is_in_a_nodes_dram() -> None:
    table = holdings(a=[1, 2, 3], b=[1, 2, 3])
    table.stored("a", [3], dram=False)
    table.stored("b", [1], dram=False)
    assert held(table, [1, 2, 3]) == {3: ["a", "b"], 2: []}
    assert table.in_dram(table.match([1, 2, 3])) == {"a": 2}
    table.stored("a", [3])
    assert table.in_dram(table.match([1, 2, 3])) == {"a": 3}
    table.removed("a", [3])
    assert table.in_dram(table.match([1, 2, 3])) == {"a": 2}
    table.check()


def test_the_lookup_returns_the_holders_of_a_block_by_medium() -> None:
    table = holdings(a=[1, 2], b=[1], c=[1, 2])
    table.stored("c", [1], dram=False)
    assert (table.where(1), table.where(2), table.where(9)) == ((("a", "b"), ("c",)), (("a", "c"), ()), ((), ()))
    table.cleared("a")
    assert table.where(2) == (("c",), ())


MOMENTS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])
CHANGES = st.lists(st.tuples(st.integers(0, 9), MOMENTS, st.integers(0, 1023)), max_size=80)


@given(CHANGES)
def test_the_ready_order_returns_the_same_target_as_a_full_scan(changes: list[tuple[int, float, int]]) -> None:
    ready_at = [inf] * 10
    order = ReadyOrder(ready_at)
    for target, moment, among in changes:
        ready_at[target] = moment
        order.note(target, moment)
        order.check()
        known = [(at, number) for number, at in enumerate(ready_at) if at != inf and among >> number & 1]
        assert order.first(among) == min(known, default=(inf, -1))[1]
        order.check()


def test_a_target_that_stopped_accepting_is_skipped() -> None:
    ready_at = [0.0, 1.0]
    order = ReadyOrder(ready_at)
    ready_at[0] = inf
    assert order.first(0b11) == 1
    assert order.first(0b01) == -1


@pytest.mark.parametrize("size", [SCANNED_TARGETS, SCANNED_TARGETS + 1])
def test_a_pool_of_any_size_sends_a_new_prompt_to_the_engine_with_the_shortest_wait(size: int) -> None:
    router, rng = pool(size=size, decode_weight=0.0), Random(5)
    assert (router.view.load.ready_order is None) == (size == SCANNED_TARGETS)
    for number in range(3 * size):
        asked = request(number, range(1000 * number, 1000 * number + rng.randrange(1, 8)), at=number * 0.001)
        least = min(router.view.load.ready_at)
        choice = router._dispatcher.placement.choose(asked, router.view, asked.arrived_s, rng)
        assert router.view.load.ready_at[choice.target] == least
        router.place(asked, asked.arrived_s, hold=number % 3 == 0)
    router.check()


def test_an_excluded_engine_is_skipped_in_a_large_pool() -> None:
    router = pool(size=SCANNED_TARGETS + 2)
    gone = frozenset(router.view.roster.engine_ids[:SCANNED_TARGETS])
    outcome = router.place(request(1), 0.0, hold=False, excluded=gone)
    assert outcome.decision.engine_id not in gone  # type: ignore[union-attr]
