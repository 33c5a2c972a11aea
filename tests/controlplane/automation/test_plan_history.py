"""The plan history stores relevant plans within its limits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from controlplane.automation import plan_history
from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.plan_history import EVERY, KEPT, forget_plans, planned
from controlplane.automation.rounds import Round
from controlplane.fleet.models.pool import Pool
from controlplane.platform.jobs.lease import Lease
from planning.facts.reason import Reason

pytestmark = pytest.mark.django_db

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


class Plan(msgspec.Struct):
    reasons: tuple[Reason, ...]


def keep(after_s: float, code: str = "calm", *, changes: bool = False, mode: str = "act", pool: str = "p") -> bool:
    at = START + timedelta(seconds=after_s)
    turn = Round(Pool(slug=pool), Lease(1, "tests", 1, at), {}, at)
    result = planned(
        turn,
        "scaling",
        Plan((Reason(code, f"{code}."),)),
        Plan(()),
        mode=mode,
        changes=changes,
        carried_out=changes,
        inputs={},
        figures={},
        outcome={},
    )
    for effect in result.effects:
        effect()
    assert (result.outcome["mode"], result.outcome["reason"]) == (mode, f"{code}.")
    return bool(result.effects)


def test_plans_with_changes_new_reasons_or_new_modes_and_one_a_minute_are_stored() -> None:
    assert keep(0)
    assert not keep(5)
    assert keep(10, "queue")
    assert keep(15, "queue", changes=True)
    assert keep(20, "queue", mode="frozen")
    assert not keep(25, "queue", mode="frozen")
    assert keep(20 + EVERY.total_seconds(), "queue", mode="frozen")


def test_history_is_limited_by_age_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_history, "MAX_ROWS", 3)
    for minute in range(6):
        keep(60.0 * minute)
        keep(60.0 * minute, pool="q")
    assert forget_plans(START + timedelta(minutes=10)) == 6
    kept = list(PlanRecord.objects.filter(pool="p").values_list("at", flat=True))
    assert kept == [START + timedelta(minutes=minute) for minute in (5, 4, 3)]
    assert forget_plans(START + KEPT + timedelta(days=1)) == 6
    assert not PlanRecord.objects.exists()
