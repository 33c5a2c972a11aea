"""Simultaneous requests, each with its own database connection."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from controlplane.fleet.models.region import Region
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.revisions import StaleRevisionError, bump
from tests.controlplane.platform.api.test_revisions import Editor
from tests.controlplane.platform.api.world import Api, World, make_world

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def own_world(transactional_db: None, bus: object) -> World:
    """Return a world that is visible to other connections."""
    return make_world()


def test_simultaneous_identical_requests_take_effect_once(own_world: World) -> None:
    statuses = []

    def create() -> None:
        answer = Api(own_world, "admin_key").post("keys", {"tenant": "acme", "name": "twin"}, Idempotency_Key="k")
        statuses.append(answer.status_code)
        connection.close()

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ApiKey.objects.filter(name="twin").count() == 1
    assert set(statuses) <= {201, 409}
    assert AuditEvent.objects.filter(verb="key.create", after__name="twin").count() == 1


def test_simultaneous_editors_lose_no_update(own_world: World) -> None:
    Region.objects.update(name="0")
    editors = [Editor(own_world), Editor(own_world)]

    def edit(editor: Editor) -> None:
        for _ in range(60):
            editor.step()
        connection.close()

    threads = [threading.Thread(target=edit, args=(editor,)) for editor in editors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(editor.written + editor.rejected for editor in editors) == 60
    assert Region.objects.get().name == str(sum(editor.written for editor in editors))


def test_write_from_an_outdated_revision_is_rejected(own_world: World) -> None:
    """The write itself is conditional, whatever checks passed before it."""
    mine, theirs = Region.objects.get(), Region.objects.get()
    bump(theirs, {"name": "theirs"})
    with pytest.raises(StaleRevisionError):
        bump(mine, {"name": "mine"})
    assert Region.objects.get().name == "theirs"
