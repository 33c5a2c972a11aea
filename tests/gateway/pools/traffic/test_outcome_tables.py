"""Outcomes per tenant, key, prompt length, class and priority: disjoint, complete, and bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts import outcomes
from gateway.contracts.outcomes import MAX_SUMMED, OTHERS, TABLES, UNREAD, OutcomeCounts, PoolOutcomes, length_range
from gateway.pools.traffic.outcome_tables import MAX_ROWS, OutcomeTable, OutcomeTables
from gateway.pools.traffic.traffic_window import CANCELLED, COMPLETED, FAILED, REJECTED
from tests.gateway.decision_records import decision_record

COLUMN = st.integers(outcomes.ON_TIME, outcomes.CANCELLED)


def ended(
    tables: OutcomeTables, outcome: str, *, tenant: str = "acme", ttft_s: float | None = 0.5, **facts: object
) -> None:
    record = decision_record("r", 0.0, ttft_s, outcome=outcome, prompt_tokens=facts.pop("tokens", 2000))
    record.tenant_id, record.key_id = tenant, f"key of {tenant}"
    for name, value in facts.items():
        setattr(record, name, value)
    tables.add(record)


def test_each_outcome_has_one_column_and_client_errors_have_none() -> None:
    tables = OutcomeTables()
    for outcome, ttft_s in (
        (COMPLETED, 0.5), (COMPLETED, 1.5), (COMPLETED, 1.5), (FAILED, 0.5), (REJECTED, None), (CANCELLED, None),
        ("client_error", None),
    ):  # fmt: skip
        ended(tables, outcome, ttft_s=ttft_s)
    total = tables.outcomes().total
    assert total == OutcomeCounts(on_time=1, late=2, failed=1, rejected=1, cancelled=1)
    assert total.requests == 5


def test_requests_are_counted_by_sender_length_class_and_priority() -> None:
    tables = OutcomeTables()
    ended(tables, COMPLETED, tokens=1023, slo_class="batch", priority=5)
    ended(tables, COMPLETED, tokens=1024, tenant="demo")
    ended(tables, REJECTED, tokens=0, tenant="demo", ttft_s=None, unread=True)
    seen = tables.outcomes()
    one, rejected, both = OutcomeCounts(on_time=1), OutcomeCounts(rejected=1), OutcomeCounts(on_time=1, rejected=1)
    assert seen.tenants == {"acme": one, "demo": both}
    assert seen.keys == {"key of acme": one, "key of demo": both}
    assert seen.lengths == {"0": one, "1024": one, UNREAD: rejected}
    assert seen.classes == {"batch": one, OTHERS: both}
    assert seen.priorities == {"5": one, "0": both}


def test_ranges_of_prompt_lengths_begin_at_their_names() -> None:
    assert [length_range(tokens) for tokens in (0, 1023, 1024, 65_535, 65_536, 10**6)] == [
        "0", "0", "1024", "16384", "65536", "65536",
    ]  # fmt: skip


def test_a_busy_name_gets_a_row_in_a_full_table() -> None:
    table = OutcomeTable()
    for number in range(20_000):
        name = "flood" if number % 3 == 0 and number > 10_000 else f"tenant-{number % 500}"
        table.add(name, outcomes.LATE)
    counts = table.counts(OutcomeCounts(late=20_000))
    assert len(counts) == MAX_ROWS + 1
    assert counts["flood"].late > 3300
    assert sum(row.late for row in counts.values()) == 20_000


@given(st.lists(st.tuples(st.integers(0, 90), COLUMN), max_size=300), st.integers(0, 300))
def test_the_rows_of_a_difference_add_up_to_its_total(requests: list[tuple[int, int]], split: int) -> None:
    tables, before = OutcomeTables(), PoolOutcomes()
    names = {outcomes.FAILED: FAILED, outcomes.REJECTED: REJECTED, outcomes.CANCELLED: CANCELLED}
    for number, (tenant, column) in enumerate(requests):
        if number == split:
            before = tables.outcomes()
        ended(tables, names.get(column, COMPLETED), tenant=str(tenant), ttft_s=1.5 if column == outcomes.LATE else 0.5)
    grown = tables.outcomes().since(before)
    assert grown.total.requests + grown.total.cancelled == len(requests) - (split if split < len(requests) else 0)
    for name in TABLES:
        rows = PoolOutcomes(total=OutcomeCounts()).plus(grown)
        assert sum(row.requests for row in getattr(rows, name).values()) == grown.total.requests, name


def test_after_a_restart_all_requests_are_new() -> None:
    before = PoolOutcomes(total=OutcomeCounts(on_time=9), tenants={"a": OutcomeCounts(on_time=9)})
    now = PoolOutcomes(total=OutcomeCounts(on_time=2), tenants={"a": OutcomeCounts(on_time=2)})
    assert now.since(before) == now


def test_a_sum_keeps_a_bounded_number_of_rows_and_every_request() -> None:
    seen = PoolOutcomes()
    for number in range(2 * MAX_SUMMED):
        one = OutcomeCounts(failed=1)
        seen = seen.plus(PoolOutcomes(total=one, tenants={f"tenant-{number}": one}))
    assert len(seen.tenants) <= MAX_SUMMED
    assert sum(row.failed for row in seen.tenants.values()) == seen.total.failed == 2 * MAX_SUMMED
