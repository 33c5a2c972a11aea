"""A reader of one pool does not learn which other pools a service has tried."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import CONSOLE, person
from controlplane.platform.role import Role
from controlplane.request_log.decision_reading import OTHER_POOL, find_decision
from gateway.contracts.stored_decision import ServiceStory
from tests.controlplane.request_log.store.records import keep, stored

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("everywhere", "name", "attempts"), [(True, "secret", ("e-secret",)), (False, OTHER_POOL, ())])
def test_other_pools_of_a_service_are_named_only_to_readers_of_all_pools(
    pool: Pool, everywhere: bool, name: str, attempts: tuple[str, ...]
) -> None:
    user = User.objects.create(username="reader")
    RoleGrant.objects.create(user=user, role=Role.VIEWER, pool=None if everywhere else pool)
    story = ServiceStory("chat", "gpt-x", (("secret", "no_engine"), (pool.slug, "late")))
    keep(stored("one", pool_id=pool.slug, service=story, attempts=("e-secret",)))
    match = find_decision(person(user, via=CONSOLE), "one")
    assert match is not None
    assert match.record is not None
    assert match.record.service is not None
    assert match.record.service.tried == ((name, "no_engine"), (pool.slug, "late"))
    assert match.record.attempts == attempts
