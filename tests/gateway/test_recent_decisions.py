"""The ring of recent decisions forgets the oldest first and keeps tenants apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.recent_decisions import DecisionRecord, RecentDecisions
from routing.decision import Decision


def _record(number: int, tenant: str = "a") -> DecisionRecord:
    decision = Decision(f"id-{number}", "pool", "engine", 1, "p", "o", 1, "reason", 100, 0, 0.0, 0.0, 0.0)
    return DecisionRecord(decision, cast("Any", SimpleNamespace()), tenant, "hashes", 10.0, 5.0, 0.0, ("engine",))


def test_the_oldest_leaves_when_it_is_full() -> None:
    recent = RecentDecisions(3)
    for number in range(5):
        recent.add(_record(number))
    assert len(recent) == 3
    assert [recent.get(f"id-{number}") is not None for number in range(5)] == [False, False, True, True, True]


def test_a_decision_is_found_by_its_tenant_only() -> None:
    recent = RecentDecisions(3)
    recent.add(_record(1, "a"))
    assert recent.find("id-1", "a") is not None
    assert recent.find("id-1", "b") is None
    assert recent.find("id-2", "a") is None


def test_the_same_id_takes_one_place() -> None:
    recent = RecentDecisions(2)
    for number in (1, 2, 2, 2):
        recent.add(_record(number))
    assert recent.get("id-1") is not None


def test_ttft_counts_from_arrival() -> None:
    record = _record(1)
    assert record.ttft_s is None
    record.first_token_s = 12.5
    assert record.ttft_s == 2.5


def test_a_ring_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity"):
        RecentDecisions(0)
