"""Predicted and reported hits of one request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec

from gateway.engines.index_trust import IndexTrust
from gateway.pool.ended_hits import hit_sample
from gateway.pool.recent_decisions import DecisionRecord
from routing.values.decision import OTHER_KEYS, Candidate, Decision
from routing.values.load_options import Fetch


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
