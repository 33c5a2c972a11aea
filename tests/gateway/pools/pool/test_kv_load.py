"""What the router learns from the result of a load that an engine reports."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.pools.pool.kv_load import load_ended
from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.pools.traffic.traffic_window import COMPLETED
from kvstore.connector.engine_params import KvOutcome
from routing.ledger.node_loads import NodeLoads
from routing.values.load_options import Fetch
from tests.routing.ledger.test_node_loads import KEYS, loads, ways


def ended(learned: NodeLoads, outcome: KvOutcome) -> None:
    """Report the result of a load of ten blocks from node b."""
    metrics: Any = SimpleNamespace(
        **{
            name: SimpleNamespace(inc=lambda *_, **__: None)
            for name in ("kv_loads", "kv_loaded_bytes", "kv_saved_tokens")
        }
    )
    nodes = SimpleNamespace(name_at=lambda _address: "")
    decision = SimpleNamespace(
        decision_id="r1", pool_id="p", engine_id="e-01", fetch=Fetch("", 10, 0.1, "b"), candidates=(), prompt_tokens=160
    )
    pool = SimpleNamespace(loads=SimpleNamespace(learned=learned, metrics=metrics, nodes=nodes))
    pool.entry, pool.orders = SimpleNamespace(block_tokens=16), SimpleNamespace(loaded=lambda *_: None)
    record = SimpleNamespace(
        load_keys=KEYS, load_ordered=10, outcome=COMPLETED, pool=pool, load=outcome, decision=decision, load_node="b"
    )
    load_ended(cast("DecisionRecord", record), 0.0)


def test_a_late_load_raises_the_links_cost_and_its_node_stays_usable() -> None:
    learned = loads(b=10)
    ended(learned, KvOutcome(seconds=5.0, reason="late"))
    assert ways(learned, "e-01") == [(10, "b")]
    assert learned.seconds("a", "b", 10) > 2 * loads().seconds("a", "b", 10)


def test_a_failed_load_has_its_node_avoided() -> None:
    learned = loads(b=10)
    ended(learned, KvOutcome(reason="failed"))
    assert ways(learned, "e-01") == []


def test_a_load_behind_others_teaches_the_link_without_their_time() -> None:
    learned = loads(b=10)
    for _ in range(100):
        learned.ordered("r0", "e-01", "b", 10, 0)
        learned.ordered("r1", "e-01", "b", 10, 0)
        ended(learned, KvOutcome(loaded_blocks=10, loaded_bytes=10 << 20, seconds=0.2))
        learned.ended("r0")
    assert learned.transfer_s("a", "b", 10) == pytest.approx(0.1, rel=0.1)
