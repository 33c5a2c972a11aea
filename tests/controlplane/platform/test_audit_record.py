"""Values that the audit records, and values that it omits."""

from __future__ import annotations

import pytest
from django.db import transaction

from controlplane.platform.actor import program
from controlplane.platform.audit import REDACTED, record, redacted
from controlplane.platform.models.audit_event import AuditEvent


def test_texts_under_secret_names_are_omitted_and_numbers_are_kept() -> None:
    cost = {"per_token_s": 1e-5, "per_token_squared_s": 2e-9, "max_tokens": 64, "sticky_token": True}
    recorded = redacted(
        {"cost": [cost], "password": "p", "deep": {"webhook_secret": "s", "bearer": "b", "api_token": ""}}
    )
    assert recorded["cost"] == [cost]
    assert recorded["password"] == REDACTED
    assert set(recorded["deep"].values()) == {REDACTED}


@pytest.mark.django_db(transaction=True)
def test_an_event_outside_a_transaction_is_rejected() -> None:
    with pytest.raises(transaction.TransactionManagementError):
        record(program("test"), "pool.change", "pool", "pool-a")
    assert not AuditEvent.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_event_is_rolled_back_with_its_change() -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        record(program("test"), "pool.change", "pool", "pool-a")
        raise RuntimeError
    assert not AuditEvent.objects.exists()
