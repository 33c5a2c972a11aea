"""The session table is bounded and per tenant; no tenant displaces all sessions of another."""

from __future__ import annotations

import random

from gateway.requests.advisories.session_table import SessionTable


def note(table: SessionTable, tenant: str, session: str, keys: int = 2) -> None:
    table.note(tenant, session, "pool", "e-1", range(1, keys + 1), 16 * keys, 0.0)


def test_the_table_keeps_the_newest_request_of_a_session() -> None:
    table = SessionTable()
    note(table, "a", "s", 2)
    note(table, "a", "s", 5)
    known = table.get("a", "s")
    assert known is not None
    assert (len(known.keys), known.tokens, len(table)) == (5, 80, 1)
    assert table.get("b", "s") is None
    table.check()


def test_a_tenant_with_many_sessions_evicts_its_oldest() -> None:
    table = SessionTable(max_per_tenant=3)
    note(table, "b", "other")
    for number in range(5):
        note(table, "a", f"s-{number}")
    assert [table.get("a", f"s-{number}") is not None for number in range(5)] == [False, False, True, True, True]
    assert table.get("b", "other") is not None
    table.check()


def test_over_the_key_limit_the_largest_tenant_is_evicted_from() -> None:
    table = SessionTable(max_keys=100, max_keys_per_tenant=80)
    note(table, "small", "s", 20)
    for number in range(6):
        note(table, "large", f"s-{number}", 20)
        table.check()
    assert table.get("small", "s") is not None


def test_random_operations_keep_counts_and_limits() -> None:
    table, rng = SessionTable(20, 8, 100, 60), random.Random(7)
    for _ in range(2000):
        tenant, session = rng.choice("abcd"), f"s-{rng.randrange(12)}"
        if rng.random() < 0.2:
            table.forget(tenant, session)
        else:
            note(table, tenant, session, rng.randrange(0, 30))
        table.check()
