"""Detects wrong shrinks, whose blocks are soon missed on the node that dropped them."""

from __future__ import annotations

import random

import pytest

from gateway.contracts.kv_move import KvMoveRow
from gateway.kv.moves import freed_copies
from gateway.kv.moves.freed_copies import MISSED_S, FreedCopies
from tests.controlplane.kv_nodes.some_orders import row


def shrink(order_id: str = "o-1", target: str = "kv-2") -> KvMoveRow:
    return row(order_id, planner="shrink", outcome="freed", target=target)


def worths(rows: list[KvMoveRow]) -> list[tuple[str, str]]:
    return [(item.order_id, item.worth) for item in rows]


def test_a_shrink_whose_blocks_are_missed_on_its_node_is_useless_once() -> None:
    freed = FreedCopies()
    assert freed.went(shrink(), (1, 2, 3), 0.0).worth == "open"
    assert freed.wanted("kv-1", (1, 2, 3), 1.0) == [], "the other node has them"
    assert freed.wanted("kv-2", (7, 8), 1.0) == []
    assert worths(freed.wanted("kv-2", (2, 3, 9), 1.0)) == [("o-1", "useless")]
    assert freed.wanted("kv-2", (2, 3, 9), 1.0) == []
    assert (len(freed), freed.sweep(MISSED_S)) == (0, [])
    freed.check()


def test_a_shrink_not_missed_for_long_enough_is_useful() -> None:
    freed = FreedCopies()
    freed.went(shrink(), (1, 2, 3), 10.0)
    assert freed.sweep(10.0 + MISSED_S - 0.1) == []
    assert freed.wanted("kv-2", (1,), 10.0 + MISSED_S) == [], "too late to be held against it"
    assert worths(freed.sweep(10.0 + MISSED_S)) == [("o-1", "useful")]
    freed.check()


def test_empty_shrinks_and_shrinks_beyond_the_limit_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_copies, "MAX_KEYS", 4)
    freed = FreedCopies()
    assert freed.went(shrink(), (), 0.0).worth == "none"
    assert freed.went(shrink(), (1, 2, 3), 0.0).worth == "open"
    assert freed.went(shrink("o-2"), (4, 5), 0.0).worth == "none"
    assert worths(freed.wanted("kv-2", (1, 4), 1.0)) == [("o-1", "useless")]


def test_random_shrinks_are_judged_once_each() -> None:
    rng, freed, reported = random.Random(5), FreedCopies(), list[tuple[str, str]]()
    now = 0.0
    for number in range(800):
        now += rng.random() * 10
        keys = [rng.randrange(60) for _ in range(rng.randrange(1, 6))]
        if rng.random() < 0.5:
            freed.went(shrink(f"o-{number}", f"kv-{rng.randrange(3)}"), tuple(dict.fromkeys(keys)), now)
        else:
            reported += worths(freed.wanted(f"kv-{rng.randrange(3)}", keys, now))
        reported += worths(freed.sweep(now))
        freed.check()
    reported += worths(freed.sweep(now + MISSED_S))
    assert len(freed) == 0
    names = [name for name, _ in reported]
    assert len(set(names)) == len(names) > 100
    assert {worth for _, worth in reported} == {"useful", "useless"}
