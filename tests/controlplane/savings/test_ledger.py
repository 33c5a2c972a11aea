"""Stored days of savings: their arithmetic, prices, holdbacks, and days without a recording."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.savings.models.savings_rows import Saving, SavingsDay, SavingsState
from controlplane.savings.reading import SavingsQuery, missing_days, totals
from controlplane.savings.replay_child import DayResult
from tests.controlplane.savings.some_days import DAY, held, keep, price, result

pytestmark = pytest.mark.django_db
ACTOR = program("test")
NOVEMBER = SavingsQuery(date(2026, 11, 1), date(2026, 11, 30))
NEXT = DAY + timedelta(days=1)


def test_a_day_has_a_row_for_the_pool_and_each_tenant(pool: Pool) -> None:
    price("chat", 2.0)
    stored = keep("chat")
    rows = {row.tenant: row for row in Saving.objects.filter(of_day=stored)}
    assert set(rows) == {"", "acme", "beta"}
    # Two engines more in each of 4 windows of 3 hours; 10 % of 400 requests.
    assert (rows[""].engine_h, rows[""].engine_h_low, rows[""].engine_h_high) == (24, 24, 24)
    assert rows[""].late == pytest.approx(40)
    assert (rows["acme"].engine_h, rows["beta"].engine_h) == (18, 6)
    assert (rows["acme"].late, rows["beta"].late) == (pytest.approx(40), 0)
    assert (stored.price_per_h, stored.hours, stored.replayed_late, stored.recorded_late) == (2.0, 12, 0, 0.02)
    [total] = totals(NOVEMBER.rows(ACTOR))
    assert total.dollars is not None
    assert (total.title, total.engine_h.mid, total.dollars.mid) == ("Round robin", 24, 48)


def test_a_price_that_changes_within_the_month_touches_no_earlier_day(pool: Pool) -> None:
    price("chat", 2.0)
    keep("chat")
    price("chat", 5.0, NEXT)
    keep("chat", NEXT, result(engines=5.0))
    [total] = totals(NOVEMBER.rows(ACTOR))
    assert total.dollars is not None
    assert (total.days, total.engine_h.mid, total.dollars.mid) == (2, 36, 24 * 2.0 + 12 * 5.0)


def test_a_day_without_a_price_is_not_free(pool: Pool) -> None:
    keep("chat")
    [total] = totals(NOVEMBER.rows(ACTOR))
    assert (total.dollars, total.unpriced_days) == (None, 1)
    price("chat", 3.0, NEXT)
    keep("chat", NEXT)
    [total] = totals(NOVEMBER.rows(ACTOR))
    assert total.dollars is not None
    assert (total.dollars.mid, total.unpriced_days, total.engine_h.mid) == (72, 1, 48)


def test_a_lower_bound_stays_one_in_the_month(pool: Pool) -> None:
    keep("chat")
    assert not totals(NOVEMBER.rows(ACTOR))[0].capped
    keep("chat", NEXT, result(capped=True))
    assert totals(NOVEMBER.rows(ACTOR))[0].capped


def test_the_holdback_is_compared_on_its_day(pool: Pool) -> None:
    held("chat", late=100)
    check = keep("chat").compared
    assert check is not None
    # Replayed: 10 % minus 2 %. Measured: 10 % minus 2 %.
    assert check.replayed.mid == pytest.approx(0.08)
    assert check.measured == pytest.approx(0.08)
    assert check.covered
    held("chat", late=400, day=NEXT)
    far = keep("chat", NEXT).compared
    assert far is not None
    assert not far.covered
    assert keep("chat", NEXT + timedelta(days=1)).compared is None


@pytest.mark.parametrize(
    ("given", "state"),
    [
        (DayResult(requests=0, windows=0), SavingsState.NOT_RECORDED),
        (DayResult(requests=90, windows=1), SavingsState.TOO_FEW),
        (result(windows=3), SavingsState.CUT_SHORT),
    ],
)
def test_a_day_that_cannot_be_replayed_has_no_figures(pool: Pool, given: DayResult, state: str) -> None:
    keep("chat", given=given)
    stored = SavingsDay.objects.get()
    assert (stored.state, stored.recorded_late, stored.replayed_late) == (state, None, None)
    assert totals(NOVEMBER.all_rows(ACTOR)) == []


def test_days_between_without_a_row_are_not_replayed(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: datetime(2026, 11, 13, 12, tzinfo=UTC))
    keep("chat")
    missing = missing_days(NOVEMBER, list(NOVEMBER.days(ACTOR)))
    assert [item.day for item in missing] == [NEXT, NEXT + timedelta(days=1)]
    assert {item.state for item in missing} == {SavingsState.NOT_REPLAYED}
    assert SavingsDay.objects.count() == 1


def test_a_second_result_of_a_day_replaces_the_first(pool: Pool) -> None:
    keep("chat")
    keep("chat", given=result(engines=5.0))
    assert [total.engine_h.mid for total in totals(NOVEMBER.rows(ACTOR))] == [12]
    assert Saving.objects.count() == 3
