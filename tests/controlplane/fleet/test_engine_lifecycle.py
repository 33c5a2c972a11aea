"""Engines leave and return by their state. Only empty engines are deleted."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.engine_lifecycle import EngineNotEmptyError, delete_engine, record_exit, set_desired_state
from controlplane.fleet.engine_registration import register_engine
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import CONSOLE, person, program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError
from controlplane.publication.snapshot import build_snapshot

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bus")]
ACTOR = program("test")


@pytest.fixture
def engine(pool: Pool) -> Engine:
    """Return an engine that accepts requests."""
    return register_engine(pool, "a", "http://10.1.2.3:8000", actor=ACTOR)


def test_state_is_published_and_audited(engine: Engine) -> None:
    set_desired_state(engine, DesiredState.DRAINING, actor=ACTOR, expected=1, why="new driver")
    assert [entry.desired_state for entry in build_snapshot(at=0.0).engines] == ["draining"]
    event = AuditEvent.objects.latest("pk")
    assert (event.verb, event.pool_slug, event.why) == ("engine.drain", "chat", "new driver")
    assert (event.before["desired_state"], event.after["desired_state"]) == ("ready", "draining")


def test_state_change_of_an_old_revision_is_rejected(engine: Engine) -> None:
    set_desired_state(Engine.objects.get(), DesiredState.MAINTENANCE, actor=ACTOR)
    with pytest.raises(StaleRevisionError):
        set_desired_state(engine, DesiredState.DRAINING, actor=ACTOR, expected=1)
    assert Engine.objects.get().desired_state == "maintenance"


def test_ranks_of_one_process_drain_and_return_together(pool: Pool) -> None:
    ranks = [register_engine(pool, f"a-{rank}", f"http://10.1.2.3:8000#{rank}", actor=ACTOR) for rank in range(3)]
    other = register_engine(pool, "b", "http://10.1.2.3:8001#0", actor=ACTOR)
    set_desired_state(ranks[2], DesiredState.MAINTENANCE, actor=ACTOR)

    def states() -> list[str]:
        return [Engine.objects.get(pk=rank.pk).desired_state for rank in (*ranks, other)]

    set_desired_state(ranks[0], DesiredState.DRAINING, actor=ACTOR, expected=1, why="new driver")
    assert states() == ["draining", "draining", "maintenance", "ready"]
    assert AuditEvent.objects.filter(verb="engine.drain", why="new driver").count() == 2
    set_desired_state(Engine.objects.get(pk=ranks[1].pk), DesiredState.READY, actor=ACTOR)
    assert states() == ["ready", "ready", "maintenance", "ready"]
    set_desired_state(Engine.objects.get(pk=ranks[1].pk), DesiredState.DRAINING, actor=ACTOR, alone=True)
    assert states() == ["ready", "draining", "maintenance", "ready"]
    assert [(item.url, item.rank) for item in build_snapshot(at=0.0).engines][:2] == [
        ("http://10.1.2.3:8000", 0),
        ("http://10.1.2.3:8000", 1),
    ]


@pytest.mark.parametrize(
    ("state", "in_flight", "lost", "message"),
    [
        (DesiredState.READY, 0, False, "drain it first"),
        (DesiredState.READY, None, True, "drain it first"),
        (DesiredState.DRAINING, 1, False, "1 request is in flight"),
        (DesiredState.MAINTENANCE, 7, True, "7 requests are in flight"),
        (DesiredState.DRAINING, None, False, "are unknown; wait for"),
    ],
)
def test_engine_that_may_have_work_is_not_deleted(
    engine: Engine, state: DesiredState, in_flight: int | None, lost: bool, message: str
) -> None:
    set_desired_state(engine, state, actor=ACTOR)
    with pytest.raises(EngineNotEmptyError, match=message):
        delete_engine(engine, actor=ACTOR, in_flight=in_flight, lost=lost)
    assert Engine.objects.exists()


@pytest.mark.parametrize(("in_flight", "lost"), [(0, False), (0, True), (None, True)])
def test_empty_engine_is_deleted(engine: Engine, in_flight: int | None, lost: bool) -> None:
    set_desired_state(engine, DesiredState.DRAINING, actor=ACTOR)
    delete_engine(engine, actor=ACTOR, in_flight=in_flight, lost=lost, expected=2)
    assert build_snapshot(at=0.0).engines == ()
    event = AuditEvent.objects.latest("pk")
    assert (event.verb, event.object_id, event.after) == ("engine.delete", engine.engine_id, None)


def test_engine_returned_to_service_meanwhile_is_not_deleted(engine: Engine) -> None:
    set_desired_state(engine, DesiredState.DRAINING, actor=ACTOR)
    set_desired_state(Engine.objects.get(), DesiredState.READY, actor=ACTOR)
    with pytest.raises(EngineNotEmptyError):
        delete_engine(engine, actor=ACTOR, in_flight=0)


def test_viewers_and_operators_of_other_pools_change_no_state(engine: Engine) -> None:
    other = Pool.objects.create(
        slug="other", name="O", region=engine.pool.region, served_model="m", policy=engine.pool.policy
    )
    for role, pool in ((Role.VIEWER, None), (Role.OPERATOR, other)):
        user = User.objects.create(username=role)
        RoleGrant.objects.create(user=user, role=role, pool=pool)
        actor = person(user, via=CONSOLE)
        with pytest.raises(NotAllowedError):
            set_desired_state(engine, DesiredState.DRAINING, actor=actor)
        with pytest.raises(NotAllowedError):
            delete_engine(engine, actor=actor, in_flight=0)
    assert Engine.objects.get().desired_state == "ready"


def test_the_end_of_an_engines_process_is_an_audit_event(engine: Engine) -> None:
    for status in (-9, 3):
        record_exit(engine.engine_id, status)
    record_exit("replay", 1)
    events = AuditEvent.objects.filter(verb="engine.exit").order_by("pk")
    assert [(event.actor_name, event.why, event.after) for event in events] == [
        ("supervisor", f"{engine.name} was killed by SIGKILL", {"exit_status": -9}),
        ("supervisor", f"{engine.name} ended with exit code 3", {"exit_status": 3}),
    ]
