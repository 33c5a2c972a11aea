"""Which blocks move to an engine's node while a request waits for the engine."""

from __future__ import annotations

from typing import Any

import pytest

from planning.kv_moves.kv_move import MAX_BLOCKS, PREFETCH, KvMove
from planning.kv_moves.prefetch import MIN_WAIT_S, prefetch
from routing.ledger.node_holdings import NodeHoldings
from routing.ledger.node_loads import NodeLoads
from routing.values.decision import Candidate, Decision
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import Fetch

KEYS = tuple(range(1, 101))
MIB = 1 << 20


def loads(keys: tuple[int, ...] = KEYS, **nodes: int) -> NodeLoads:
    """Return loads of an engine with local node a, where nodes hold this many leading blocks."""
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
    return prefetch(request, decision, made.options(keys, 0.0))


def test_blocks_held_only_by_another_node_move_while_the_request_waits() -> None:
    move = planned(loads(b=60))
    assert move == KvMove(PREFETCH, "b", "a", KEYS[:60], pytest.approx(0.002 + 60 * MIB / 1e9))


def test_only_blocks_missing_on_the_local_node_move() -> None:
    move = planned(loads(a=20, b=60))
    assert move is not None
    assert (move.source, move.keys) == ("b", KEYS[20:60])


def test_the_option_that_saves_most_is_chosen_and_the_cheapest_of_equal_holders() -> None:
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
def test_nothing_moves_if_no_other_node_has_more(made: NodeLoads, why: str) -> None:
    assert planned(made) is None, why


def test_blocks_that_the_engine_itself_holds_do_not_move() -> None:
    assert planned(loads(b=60), held=60) is None


def test_nothing_moves_for_a_wait_shorter_than_the_transfer() -> None:
    assert planned(loads(b=60), wait_s=MIN_WAIT_S / 2) is None
    seconds = 0.002 + 60 * MIB / 1e9
    assert planned(loads(b=60), wait_s=seconds * 0.9) is None
    assert planned(loads(b=60), wait_s=seconds * 1.1) is not None


def test_nothing_moves_if_computing_is_cheaper_than_a_local_load() -> None:
    assert planned(loads(b=60), compute_s=1e-4) is None


def test_a_load_too_slow_from_remote_can_be_worth_it_locally() -> None:
    """The router decided to compute: 60 blocks in 48 ms, while the remote load takes 65 ms and the local one 33 ms."""
    assert planned(loads(b=60), compute_s=0.08) is not None


def test_an_engine_without_a_node_gets_no_moves() -> None:
    assert planned(loads(b=60), engine_id="e-09") is None


def test_blocks_to_be_loaded_from_the_local_node_move_from_its_ssd() -> None:
    move = planned(loads(a=60), held=10, fetch=Fetch("", 60, 0.1, "a", ssd_blocks=40))
    assert move is not None
    assert (move.source, move.target, move.keys) == ("a", "a", KEYS[20:60])
    assert planned(loads(a=60), held=10, fetch=Fetch("", 60, 0.1, "a")) is None


def test_blocks_move_even_for_a_completely_fetched_prompt() -> None:
    move = planned(loads(b=100), fetch=Fetch("", 100, 0.1, "b"))
    assert move is not None
    assert len(move.keys) == 100


def test_the_size_of_a_move_is_limited() -> None:
    keys = tuple(range(1, MAX_BLOCKS + 500))
    move = planned(loads(keys, b=len(keys)), keys=keys, wait_s=60.0, compute_s=1000.0)
    assert move is not None
    assert move.keys == keys[:MAX_BLOCKS]
