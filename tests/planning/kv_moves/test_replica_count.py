"""The number of copies per prefix: the hottest nodes get one, cold replicas are dropped, and one copy always stays."""

from __future__ import annotations

import random

import pytest

from planning.kv_moves import replica_count
from planning.kv_moves.kv_move import REPLICATE, SHRINK, KvMove
from planning.kv_moves.replica_count import COLD_S, Replicas, change_replica, holders_of
from routing.ledger.node_holdings import NodeHoldings

KEYS = tuple(range(1, 21))


def holdings(**nodes: int) -> NodeHoldings:
    """Return nodes that hold this many of the leading blocks."""
    table = NodeHoldings()
    for name, blocks in nodes.items():
        table.join(name)
        table.stored(name, KEYS[:blocks])
        table.complete(name)
    return table


def test_more_copies_go_to_the_nodes_with_most_demand() -> None:
    moves = change_replica(
        KEYS,
        3,
        {"c": 1.0, "d": 4.0, "e": 2.0},
        holdings(a=20, b=19, c=0, d=0, e=0),
        lambda target, _: {"d": 0.4, "e": 0.2}[target],
    )
    assert moves == [KvMove(REPLICATE, "a", "d", KEYS, 0.4), KvMove(REPLICATE, "a", "e", KEYS, 0.2)]


def test_the_cheapest_of_several_holders_sends() -> None:
    moves = change_replica(KEYS, 3, {"c": 1.0}, holdings(a=20, b=20), lambda _, source: 1.0 if source == "a" else 0.5)
    assert moves == [KvMove(REPLICATE, "b", "c", KEYS, 0.5)]


def test_excess_copies_are_dropped_where_demand_is_lowest() -> None:
    moves = change_replica(KEYS, 1, {"a": 1.0, "b": 3.0}, holdings(a=20, b=20, c=20))
    assert moves == [KvMove(SHRINK, "b", "a", KEYS, 0.0), KvMove(SHRINK, "b", "c", KEYS, 0.0)]


def test_the_current_number_and_a_prefix_without_holders_change_nothing() -> None:
    assert change_replica(KEYS, 2, {"c": 1.0}, holdings(a=20, b=20)) == []
    assert change_replica(KEYS, 3, {"c": 1.0}, holdings(a=19)) == []


@pytest.mark.parametrize("seed", range(20))
def test_for_any_request_one_copy_stays_and_no_node_is_named_twice(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        held = holdings(**{name: rng.choice([0, 10, 20]) for name in "abcde"})
        holders, copies = holders_of(KEYS, held), rng.randrange(-1, 7)
        moves = change_replica(KEYS, copies, {name: rng.random() for name in rng.sample("abcdef", 3)}, held)
        came = {move.target for move in moves if move.planner == REPLICATE}
        went = {move.target for move in moves if move.planner == SHRINK}
        assert len(moves) == len(came) + len(went)
        assert not came & set(holders)
        assert went <= set(holders) - {move.source for move in moves}
        left = (set(holders) | came) - went
        assert bool(left) == bool(holders)
        assert len(left) <= max(1, copies, len(holders) if copies >= len(holders) else 0)


def test_a_replica_without_a_load_is_dropped() -> None:
    held, replicas = holdings(a=20, b=20), Replicas()
    replicas.made("b", KEYS, "pool", 0.0)
    assert replicas.cold(held, COLD_S - 1) is None
    assert replicas.cold(held, COLD_S) == (KvMove(SHRINK, "a", "b", KEYS, 0.0), "pool")
    held.removed("b", KEYS[10:])
    assert replicas.cold(held, 2 * COLD_S) is None
    assert len(replicas) == 0


def test_a_replica_that_its_node_keeps_is_named_a_few_more_times() -> None:
    held, replicas = holdings(a=20, b=20), Replicas()
    replicas.made("b", KEYS, "pool", 0.0)
    named = [replicas.cold(held, COLD_S * tenth / 10) is not None for tenth in range(101)]
    assert [at for at, yes in enumerate(named) if yes] == [10, 20, 30, 40]
    assert len(replicas) == 0


def test_a_replica_that_serves_loads_stays() -> None:
    held, replicas = holdings(a=20, b=20), Replicas()
    replicas.made("b", KEYS, "pool", 0.0)
    replicas.loaded("b", (*KEYS, 99), 100.0)
    replicas.loaded("a", KEYS, 200.0)
    replicas.loaded("b", KEYS[:19], 200.0)
    assert replicas.cold(held, 100.0 + COLD_S - 1) is None
    assert replicas.cold(held, 100.0 + COLD_S) is not None


def test_the_last_copy_and_a_removed_replica_are_not_named() -> None:
    replicas = Replicas()
    replicas.made("b", KEYS, "pool", 0.0)
    assert replicas.cold(holdings(a=19, b=20), COLD_S) is None
    replicas.made("b", KEYS, "pool", 0.0)
    assert replicas.cold(holdings(a=20, b=3, c=20), COLD_S) is None
    assert len(replicas) == 0


def test_a_node_not_completely_known_does_not_count_as_a_holder() -> None:
    held, replicas = holdings(a=20, b=20), Replicas()
    held.cleared("a")
    replicas.made("b", KEYS, "pool", 0.0)
    assert replicas.cold(held, COLD_S) is None


def test_random_replicas_stay_within_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_count, "MAX_REPLICAS", 30)
    monkeypatch.setattr(replica_count, "MAX_KEYS", 200)
    rng, replicas, held = random.Random(3), Replicas(), holdings(a=20, b=20)
    for number in range(1500):
        keys = KEYS[: rng.randrange(1, 21)]
        now = number / 2
        if rng.random() < 0.4:
            replicas.made(rng.choice("abc"), [key + 100 * rng.randrange(20) for key in keys], "pool", now)
        elif rng.random() < 0.7:
            replicas.loaded(rng.choice("abcd"), [key + 100 * rng.randrange(20) for key in keys], now)
        else:
            replicas.cold(held, now)
        replicas.check()
