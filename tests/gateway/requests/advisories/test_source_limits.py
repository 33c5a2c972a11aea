"""Limits per source: one bucket per API key, which shrinks as more advisories are spurious.

The session table is bounded and per tenant; no tenant displaces all sessions of another.
"""

from __future__ import annotations

import random

from gateway.requests.advisories.session_table import SessionTable
from gateway.requests.advisories.source_limits import (
    BURST,
    MAX_SOURCES,
    MAX_TOKENS,
    PER_S,
    TOKEN_SHARE,
    SourceLimits,
    TokenLimits,
)
from planning.kv_moves.planner_trust import TRIAL_S


def test_a_source_gets_a_burst_and_then_a_constant_rate() -> None:
    limits = SourceLimits()
    assert all(limits.take("a", "k", 0.0) == 0.0 for _ in range(int(BURST)))
    assert 0.0 < limits.take("a", "k", 0.0) <= 1.0 / PER_S
    taken = sum(limits.take("a", "k", 1.0) == 0.0 for _ in range(1000))
    assert taken == PER_S
    assert limits.take("a", "other", 1.0) == limits.take("b", "k", 1.0) == 0.0


def test_a_spurious_source_moves_little_and_with_lowest_priority() -> None:
    limits = SourceLimits()
    good, bad = limits.rank("a", "good", 1, 0.0), limits.rank("a", "bad", 1, 0.0)
    assert good == bad
    for _ in range(40):
        limits.judged("a", "good", True, 0.0)
        limits.judged("a", "bad", False, 0.0)
    assert limits.rank("a", "good", 1, 0.0) < limits.rank("a", "bad", 0, 0.0)
    assert limits.may_move("a", "good", 0.0)
    assert [limits.may_move("a", "bad", at) for at in (0.0, 1.0, TRIAL_S)] == [True, False, True]
    for _ in range(20):
        limits.judged("a", "bad", True, 0.0)
    assert all(limits.may_move("a", "bad", TRIAL_S + 1) for _ in range(3))


def test_sources_are_bounded() -> None:
    limits = SourceLimits()
    for number in range(MAX_SOURCES + 10):
        limits.take("a", f"k-{number}", 0.0)
    assert len(limits) == MAX_SOURCES


def test_a_token_gets_a_share_of_its_keys_allowance() -> None:
    limits = TokenLimits()
    assert sum(limits.take("t", None, 0.0) == 0.0 for _ in range(1000)) == TOKEN_SHARE * BURST
    assert 0.0 < limits.take("t", None, 0.0) <= 1.0 / (TOKEN_SHARE * PER_S)
    assert sum(limits.take("t", None, 1.0) == 0.0 for _ in range(1000)) == TOKEN_SHARE * PER_S
    assert limits.take("other", None, 0.0) == 0.0


def test_a_token_gets_a_share_of_a_limited_key_and_at_least_one_call() -> None:
    limits = TokenLimits()
    assert sum(limits.take("t", 600, 0.0) == 0.0 for _ in range(1000)) == TOKEN_SHARE * BURST
    assert sum(limits.take("t", 600, 60.0) == 0.0 for _ in range(1000)) == TOKEN_SHARE * BURST
    assert sum(limits.take("u", 4, 0.0) == 0.0 for _ in range(10)) == 1
    assert limits.take("u", 4, 0.0) == 60.0 / (4 * TOKEN_SHARE)


def test_tokens_are_bounded() -> None:
    limits = TokenLimits()
    for number in range(MAX_TOKENS + 10):
        limits.take(f"t-{number}", None, 0.0)
    assert len(limits) == MAX_TOKENS


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
        elif rng.random() < 0.5:
            first = rng.randrange(1, 40)
            table.continued(first, range(first + 1, first + 1 + rng.randrange(1, 5)))
        else:
            note(table, tenant, session, rng.randrange(0, 30))
        table.check()


def test_stored_blocks_extend_the_session_that_ends_before_them() -> None:
    table = SessionTable()
    note(table, "a", "s", 3)
    table.continued(3, [30, 31])
    table.continued(31, [32])
    table.continued(2, [99])
    known = table.get("a", "s")
    assert known is not None
    assert list(known.keys) == [1, 2, 3, 30, 31, 32]
    table.check()


def test_no_session_is_extended_where_several_end() -> None:
    table = SessionTable()
    note(table, "a", "s", 3)
    note(table, "a", "t", 3)
    table.continued(3, [30])
    table.forget("a", "s")
    table.continued(3, [30])
    known = table.get("a", "t")
    assert known is not None
    assert list(known.keys) == [1, 2, 3]
    note(table, "a", "t", 3)
    table.continued(3, [30])
    known = table.get("a", "t")
    assert known is not None
    assert list(known.keys) == [1, 2, 3, 30]
    table.check()
