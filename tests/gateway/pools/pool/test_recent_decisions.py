"""The ring of recent decisions evicts the oldest first and separates tenants.

Predicted and reported hits of one request.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from gateway.pools.engines.index_trust import IndexTrust
from gateway.pools.pool import recent_decisions
from gateway.pools.pool.ended_hits import hit_sample
from gateway.pools.pool.recent_decisions import PER_ENGINE, DecisionRecord, RecentDecisions
from routing.values.decision import OTHER_KEYS, Candidate, Decision
from routing.values.engine_pair import EnginePair
from routing.values.load_options import Fetch
from tests.gateway.decision_records import decision_record


def _record(number: int, tenant: str = "a") -> DecisionRecord:
    decision = Decision(f"id-{number}", "pool", "engine", 1, "p", "o", 1, "reason", 100, 0, 0.0, 0.0, 0.0)
    return DecisionRecord(decision, cast("Any", SimpleNamespace()), tenant, "hashes", 10.0, 5.0, 0.0, ("engine",))


def test_the_oldest_is_evicted_when_the_ring_is_full() -> None:
    recent = RecentDecisions(3)
    for number in range(5):
        recent.add(_record(number))
    assert len(recent) == 3
    assert [recent.get(f"id-{number}") is not None for number in range(5)] == [False, False, True, True, True]


def test_only_the_tenant_of_a_decision_can_read_it() -> None:
    recent = RecentDecisions(3)
    recent.add(_record(1, "a"))
    assert recent.find("id-1", "a") is not None
    assert recent.find("id-1", "b") is None
    assert recent.find("id-2", "a") is None


def test_a_repeated_id_uses_one_entry() -> None:
    recent = RecentDecisions(2)
    for number in (1, 2, 2, 2):
        recent.add(_record(number))
    assert recent.get("id-1") is not None


def test_each_decision_is_returned_once_and_waiting_ones_separately() -> None:
    recent, records = RecentDecisions(10), [_record(number) for number in range(3)]
    for record, queued_s in zip(records, (0.0, 0.5, 0.0), strict=True):
        record.decision = msgspec.structs.replace(record.decision, queued_s=queued_s)
        recent.add(record)
    recent.add(records[0], again=True)
    assert recent.take_added() == ([records[0], records[2]], [records[1]])
    recent.add(records[2], again=True)
    assert recent.take_added() == ([], [])


def test_ttft_counts_from_arrival() -> None:
    record = _record(1)
    assert record.ttft_s is None
    record.first_token_s = 12.5
    assert record.ttft_s == 2.5


def test_a_ring_without_capacity_is_rejected() -> None:
    with pytest.raises(ValueError, match="capacity"):
        RecentDecisions(0)


def _moved(number: int, engine_id: str) -> DecisionRecord:
    record = _record(number)
    record.decision = msgspec.structs.replace(record.decision, engine_id=engine_id)
    return record


def test_an_engines_last_decisions_are_listed_newest_first_and_bounded() -> None:
    recent = RecentDecisions(1000)
    for number in range(50):
        recent.add(_moved(number, f"engine-{number % 2}"))
    names = [record.decision.decision_id for record in recent.of_engine("engine-1")]
    assert names == [f"id-{number}" for number in range(49, 49 - 2 * PER_ENGINE, -2)]
    assert recent.of_engine("nowhere") == []


def test_a_decision_moved_to_another_engine_is_listed_only_there() -> None:
    recent = RecentDecisions(10)
    record = _moved(1, "first")
    recent.add(record)
    record.decision = msgspec.structs.replace(record.decision, engine_id="second")
    recent.add(record)
    assert recent.of_engine("first") == []
    assert recent.of_engine("second") == [record]
    assert len(recent) == 1


def test_a_rejected_request_is_listed_at_no_engine() -> None:
    recent = RecentDecisions(10)
    recent.add(_moved(1, ""))
    assert recent.of_engine("") == []


def test_removed_engines_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_decisions, "MAX_ENGINES", 3)
    recent = RecentDecisions(1000)
    for number in range(6):
        for name, engine_id in ((number, f"engine-{number}"), (100 + number, "engine-0")):
            record = _moved(name, engine_id)
            record.arrived_s = float(number)
            recent.add(record)
    assert recent.of_engine("engine-1") == []
    assert len(recent.of_engine("engine-5")) == 1
    assert len(recent.of_engine("engine-0")) == 7


def test_a_decision_for_two_engines_is_listed_at_both() -> None:
    recent, record = RecentDecisions(), _record(1)
    record.decision = msgspec.structs.replace(record.decision, pair=EnginePair("1", "decoder", 1, "r", 0.1, 100))
    recent.add(record)
    assert recent.of_engine("engine") == recent.of_engine("decoder") == [record]


def _ended(decision: Decision, key_source: str) -> DecisionRecord:
    engines = {"e-1": SimpleNamespace(hits=IndexTrust())}
    pool = SimpleNamespace(entry=SimpleNamespace(block_tokens=16), engines=engines)
    record = DecisionRecord(decision, cast("Any", pool), "t", key_source, 50.0, 1.0, 0.0, ("e-1",))
    record.finished_s, record.cached_tokens = 51.0, 32
    return record


def test_a_request_that_expected_a_fetch_is_compared_too() -> None:
    chosen = Candidate("e-1", 96, 0.0, 0.1, 0.1, 2)
    decision = Decision(
        "d", "pool", "e-1", 1, "mooncake", "fifo", 1, "fetch", 100, 96, 0.0, 0.1, 50.0,
        candidates=(chosen,), fetch=Fetch("e-2", 6, 0.05),
    )  # fmt: skip
    sample = hit_sample(_ended(decision, "tokens"))
    assert sample is not None
    assert (sample.believed_tokens, sample.reported_tokens) == (32, 32)


def test_a_prompt_known_only_by_its_prefix_does_not_judge_the_index() -> None:
    decision = Decision("d", "pool", "e-1", 1, "mooncake", "fifo", 1, "fetch", 100, 16, 0.0, 0.1, 50.0)
    assert hit_sample(_ended(decision, "tokenized")) is not None
    assert hit_sample(_ended(decision, "prefix")) is None


def test_a_request_without_a_witness_does_not_judge_the_index() -> None:
    decision = Decision("d", "pool", "e-1", 1, "mooncake", "fifo", 1, "fetch", 100, 16, 0.0, 0.1, 50.0)
    record = _ended(decision, "tokenized")
    record.witness = None
    assert hit_sample(record) is None


def test_a_decision_made_without_knowing_the_blocks_does_not_judge_the_index() -> None:
    decision = Decision("d", "pool", "e-1", 1, "mooncake", "fifo", 1, "fetch", 100, 0, 0.0, 0.1, 50.0)
    for decided_by, compared in (("a, epoch 3", True), (f"a, epoch 3{OTHER_KEYS}", False)):
        sample = hit_sample(_ended(msgspec.structs.replace(decision, decided_by=decided_by), "tokens"))
        assert (sample is not None) == compared


def test_another_attempt_changes_when_a_request_was_decided_but_not_when_it_came() -> None:
    record = decision_record("r", arrived_s=50.0, decided_s=50.5)
    record.arrived_at = 1000.0
    assert record.decided_at == 1000.5
    record.decision = decision_record("r", arrived_s=50.0, decided_s=54.0, queued_s=4.0).decision
    assert (record.arrived_at, record.decided_at) == (1000.0, 1004.0)
