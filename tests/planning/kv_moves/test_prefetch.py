"""Blocks that move to an engine's node while a request waits for it, and when none do."""

from __future__ import annotations

from typing import Any

import pytest

from planning.kv_moves.kv_move import MAX_BLOCKS, PREFETCH, KvMove
from planning.kv_moves.prefetch import MIN_WAIT_S, prefetch
from routing.ledger.node_holdings import NodeHoldings
from routing.ledger.node_loads import NodeLoads
from routing.values.decision import Candidate, Decision, Fetch
from routing.values.inference_request import InferenceRequest

KEYS = tuple(range(1, 101))
MIB = 1 << 20


def loads(keys: tuple[int, ...] = KEYS, **nodes: int) -> NodeLoads:
    """Return loads of an engine whose own node is a, where nodes hold this many leading blocks."""
    holdings = NodeHoldings()
    for name, blocks in nodes.items():
        holdings.join(name)
        holdings.stored(name, keys[:blocks])
        holdings.complete(name)
    made = NodeLoads(holdings)
    made.set_nodes({"e-01": "a"}, {"a": MIB, "b": MIB})
    return made


def planned(
    made: NodeLoads,
    *,
    held: int = 0,
    wait_s: float = 5.0,
    compute_s: float = 10.0,
    fetch: Fetch | None = None,
    engine_id: str = "e-01",
    keys: tuple[int, ...] = KEYS,
) -> KvMove | None:
    tokens = 16 * len(keys)
    hit = 16 * (fetch.blocks if fetch is not None else held)
    request = InferenceRequest("r-1", keys, tokens, 16, 0.0, 1.0)
    fields: dict[str, Any] = {"prompt_tokens": tokens, "hit_tokens": hit, "wait_s": wait_s, "compute_s": compute_s}
    chosen = Candidate(engine_id, hit, wait_s, compute_s, 0.0, held)
    decision = Decision(
        "r-1", "pool", engine_id, 1, "p", "o", 1, "x", decided_s=0.0, candidates=(chosen,), fetch=fetch, **fields
    )
    return prefetch(request, decision, made, 0.0)


def test_what_only_another_node_holds_comes_while_the_request_waits() -> None:
    move = planned(loads(b=60))
    assert move == KvMove(PREFETCH, "b", "a", KEYS[:60], pytest.approx(0.002 + 60 * MIB / 1e9))


def test_only_what_the_own_node_lacks_travels() -> None:
    move = planned(loads(a=20, b=60))
    assert move is not None
    assert (move.source, move.keys) == ("b", KEYS[20:60])


def test_of_several_ways_the_one_that_saves_most_is_taken_and_of_equal_holders_the_cheaper() -> None:
    made = loads(b=60, c=90)
    move = planned(made)
    assert move is not None
    assert (move.source, len(move.keys)) == ("c", 90)
    made = loads(b=60, c=60)
    for _ in range(20):
        made.loaded("e-01", "c", 60, 60 * MIB, 0.05, 0.0)
    move = planned(made)
    assert move is not None
    assert move.source == "c"


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (loads(), "nobody holds anything"),
        (loads(a=60), "the own node has it all"),
        (loads(a=60, b=60), "the own node has as much"),
    ],
)
def test_where_no_other_node_has_more_nothing_moves(made: NodeLoads, why: str) -> None:
    assert planned(made) is None, why


def test_what_the_engine_itself_holds_is_not_moved_for() -> None:
    assert planned(loads(b=60), held=60) is None


def test_a_request_that_hardly_waits_or_is_too_short_for_the_transfer_is_left_alone() -> None:
    assert planned(loads(b=60), wait_s=MIN_WAIT_S / 2) is None
    seconds = 0.002 + 60 * MIB / 1e9
    assert planned(loads(b=60), wait_s=seconds * 0.9) is None
    assert planned(loads(b=60), wait_s=seconds * 1.1) is not None


def test_where_computing_is_cheaper_than_a_load_from_the_own_node_nothing_moves() -> None:
    assert planned(loads(b=60), compute_s=1e-4) is None


def test_a_load_that_does_not_pay_from_afar_may_pay_from_near() -> None:
    """The router decided to compute: 60 blocks in 48 ms, where the far load takes 65 and the near one 33."""
    assert planned(loads(b=60), compute_s=0.08) is not None


def test_an_engine_without_a_node_gets_nothing() -> None:
    assert planned(loads(b=60), engine_id="e-09") is None


def test_what_will_be_loaded_from_the_own_node_is_brought_from_its_ssd() -> None:
    move = planned(loads(a=60), held=10, fetch=Fetch("", 60, 0.1, "a", ssd_blocks=40))
    assert move is not None
    assert (move.source, move.target, move.keys) == ("a", "a", KEYS[20:60])
    assert planned(loads(a=60), held=10, fetch=Fetch("", 60, 0.1, "a")) is None


def test_a_prompt_that_is_all_fetched_is_moved_for() -> None:
    move = planned(loads(b=100), fetch=Fetch("", 100, 0.1, "b"))
    assert move is not None
    assert len(move.keys) == 100


def test_a_move_has_a_limit() -> None:
    keys = tuple(range(1, MAX_BLOCKS + 500))
    move = planned(loads(keys, b=len(keys)), keys=keys, wait_s=60.0, compute_s=1000.0)
    assert move is not None
    assert move.keys == keys[:MAX_BLOCKS]
