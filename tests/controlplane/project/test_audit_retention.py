"""Audit events are deleted only by age and in batches. The deletion is audited."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from controlplane.platform import audit
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.project import housekeeping as retention
from controlplane.project.housekeeping import EVENTS_EVERY, forget_events, housekeeping

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bus")]
NOW = timezone.now()
DAY = timedelta(days=1)


def happened(at: datetime, name: str) -> None:
    with transaction.atomic():
        event = audit.record(program("test"), "test.happen", "test", name)
    AuditEvent.objects.filter(pk=event.pk).update(at=at)


def left() -> list[str]:
    return list(AuditEvent.objects.filter(verb="test.happen").order_by("at").values_list("object_id", flat=True))


@override_settings(AUDIT_RETENTION_DAYS=10)
def test_expired_events_are_deleted_and_the_deletion_is_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    for age, name in ((15, "old"), (11, "older than the limit"), (9, "young")):
        happened(NOW - age * DAY, name)
    assert forget_events(NOW) == 2
    assert left() == ["young"]
    (event,) = AuditEvent.objects.filter(verb="audit.forget")
    assert (event.after["events"], event.after["retention_days"]) == (2, 10)
    assert forget_events(NOW + DAY) == 0
    assert AuditEvent.objects.filter(verb="audit.forget").count() == 1


@override_settings(AUDIT_RETENTION_DAYS=10)
def test_one_transaction_deletes_a_limited_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "EVENTS_AT_ONCE", 3)
    for number in range(5):
        happened(NOW - (20 - number) * DAY, str(number))
    assert forget_events(NOW) == 3
    assert left() == ["3", "4"]
    assert forget_events(NOW) == 2


@override_settings(AUDIT_RETENTION_DAYS=10)
def test_deletion_may_be_a_day_late_so_that_it_is_rare() -> None:
    happened(NOW - 10 * DAY - EVENTS_EVERY / 2, "due")
    assert forget_events(NOW) == 0
    assert forget_events(NOW + EVENTS_EVERY) == 1


@override_settings(AUDIT_RETENTION_DAYS=0)
def test_without_a_limit_all_events_stay() -> None:
    happened(NOW - 9000 * DAY, "old")
    assert forget_events(NOW) == 0


@override_settings(AUDIT_RETENTION_DAYS=10)
def test_housekeeping_deletes_expired_events() -> None:
    happened(NOW - 20 * DAY, "old")
    housekeeping()
    assert left() == []
