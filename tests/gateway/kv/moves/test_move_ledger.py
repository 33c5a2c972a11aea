"""The value of copies: the loads served from them before they are removed."""

from __future__ import annotations

import random

import pytest

from gateway.contracts.kv_move import KvMoveRow
from gateway.kv.moves import move_ledger
from gateway.kv.moves.move_ledger import GRACE_S, MAX_AGE_S, MoveLedger
from tests.controlplane.kv_nodes.some_orders import row


class Kept:
    """A ledger and the contents of its nodes."""

    def __init__(self) -> None:
        self.gone: set[tuple[str, int]] = set()
        self.judged: list[tuple[str, str]] = []
        self.book = MoveLedger(lambda node, key: (node, key) not in self.gone, self._judge)

    def _judge(self, row: KvMoveRow) -> None:
        self.judged.append((row.order_id, row.worth))

    def rows(self) -> dict[str, KvMoveRow]:
        return {take_row.order_id: take_row for take_row in self.book.take_rows(1000)}


def saved(kept: Kept, node: str, keys: tuple[int, ...]) -> dict[str, int]:
    """Return the tokens that copies on a node save a request with these blocks, by planner."""
    return {row.planner: tokens for row, tokens in kept.book.loaded(node, keys)}


def test_a_copy_that_serves_a_load_is_useful_and_its_tokens_add_up() -> None:
    kept = Kept()
    kept.book.ended(row(), (1, 2, 3), 16, 0.0)
    assert kept.rows()["o-1"].worth == "open"
    assert saved(kept, "kv-2", (1, 2, 9)) == {"prefetch": 32}
    assert saved(kept, "kv-2", (3,)) == {"prefetch": 16}
    reported = kept.rows()["o-1"]
    assert (reported.loads, reported.saved_tokens, reported.worth) == (2, 48, "useful")
    assert kept.judged == [("o-1", "useful")]
    kept.book.check()


def test_loads_from_another_node_or_of_other_blocks_do_not_count() -> None:
    kept = Kept()
    kept.book.ended(row(), (1, 2, 3), 16, 0.0)
    assert saved(kept, "kv-1", (1, 2, 3)) == {}
    assert saved(kept, "kv-2", (7, 8)) == {}
    assert kept.judged == []


def test_a_copy_removed_without_a_load_is_useless() -> None:
    kept = Kept()
    kept.book.ended(row(), (1, 2, 3), 16, 0.0)
    kept.gone = {("kv-2", 1)}
    kept.book.sweep(GRACE_S / 2)
    assert kept.judged == [], "the event of the block may still be on its way"
    kept.book.sweep(GRACE_S + 1)
    assert kept.judged == [("o-1", "useless")]
    assert kept.rows()["o-1"].worth == "useless"
    assert (len(kept.book), saved(kept, "kv-2", (1,))) == (0, {})
    kept.book.check()


def test_a_useful_copy_stays_useful_after_its_removal() -> None:
    kept = Kept()
    kept.book.ended(row(), (1,), 16, 0.0)
    kept.book.loaded("kv-2", (1,))
    kept.gone = {("kv-2", 1)}
    kept.book.sweep(GRACE_S + 1)
    assert kept.judged == [("o-1", "useful")]
    assert kept.rows()["o-1"].worth == "useful"


def test_an_old_copy_is_judged_although_it_remains() -> None:
    kept = Kept()
    kept.book.ended(row(), (1,), 16, 0.0)
    kept.book.sweep(MAX_AGE_S - 1)
    assert kept.judged == []
    kept.book.sweep(MAX_AGE_S + 1)
    assert kept.judged == [("o-1", "useless")]


def test_an_order_that_moved_nothing_is_reported_and_not_judged() -> None:
    kept = Kept()
    kept.book.ended(row(outcome="failed", blocks=0, bytes=0), (), 16, 0.0)
    kept.book.sweep(MAX_AGE_S + 1)
    assert (kept.rows()["o-1"].worth, kept.judged, len(kept.book)) == ("none", [], 0)


def test_the_latest_copy_of_a_block_gets_the_credit() -> None:
    kept = Kept()
    kept.book.ended(row("o-1"), (1, 2), 16, 0.0)
    kept.book.ended(row("o-2", planner="replicate"), (2, 3), 16, 1.0)
    assert saved(kept, "kv-2", (1, 2, 3)) == {"prefetch": 16, "replicate": 32}
    kept.book.check()


def test_rows_are_reported_once_and_in_their_final_state() -> None:
    kept = Kept()
    kept.book.ended(row(), (1,), 16, 0.0)
    kept.book.loaded("kv-2", (1,))
    assert [take_row.loads for take_row in kept.book.take_rows(10)] == [1]
    assert kept.book.take_rows(10) == []


def test_random_operations_stay_within_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_ledger, "MAX_COPIES", 8)
    monkeypatch.setattr(move_ledger, "MAX_KEYS", 40)
    rng, kept = random.Random(3), Kept()
    for number in range(3000):
        what = rng.random()
        if what < 0.4:
            first = rng.randrange(60)
            keys = tuple(range(first, first + rng.randrange(0, 12)))
            target = rng.choice(("kv-1", "kv-2"))
            kept.book.ended(row(f"o-{number}", target=target), keys, 16, number / 10)
        elif what < 0.8:
            kept.book.loaded(rng.choice(("kv-1", "kv-2", "kv-3")), [rng.randrange(70) for _ in range(5)])
        else:
            kept.gone = {("kv-1", rng.randrange(70)), ("kv-2", rng.randrange(70))}
            kept.book.sweep(number / 10)
        kept.book.check()
    names = [order_id for order_id, _ in kept.judged]
    assert len(names) == len(set(names)), "a copy was judged twice"


def test_a_copy_whose_load_cannot_be_seen_stays_open() -> None:
    kept = Kept()
    kept.book.ended(row(), (1, 2, 3), 16, 0.0)
    kept.rows()
    kept.book.unseen("kv-2", (3, 4))
    kept.gone = {("kv-2", 1)}
    kept.book.sweep(GRACE_S + 1)
    assert (kept.judged, kept.rows(), len(kept.book)) == ([], {}, 0)
    kept.book.check()
