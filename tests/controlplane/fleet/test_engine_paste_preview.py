"""A preview stores nothing and reports every problem. Only previewed lines are registered."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import override_settings

from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.engine_paste import parse_lines, split_lines
from controlplane.fleet.engine_paste_preview import apply, preview
from controlplane.fleet.engine_registration import register_engine
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.platform.actor import CONSOLE, Actor, person, program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun
from controlplane.platform.role import Role
from controlplane.policies.models.policy import Policy
from gateway.bus.bus import Bus

pytestmark = pytest.mark.django_db
PROGRAM = program("test")
GOOD = "a http://10.0.0.1:8000\nb http://10.0.0.2:8000"


def shown(text: str, pool: str = "chat", actor: Actor = PROGRAM) -> list[tuple[str, ...]]:
    return [line.problems for line in preview(parse_lines(split_lines(text)), pool, actor=actor)]


def test_preview_of_valid_lines_stores_nothing(pool: Pool, bus: Bus) -> None:
    assert shown(GOOD) == [(), ()]
    assert not Engine.objects.exists()


@pytest.mark.parametrize(
    ("line", "default", "problem"),
    [
        ("c http://10.0.0.3", "", "No pool; add one"),
        ("c nowhere http://10.0.0.3", "chat", "No pool nowhere; known are chat."),
        ("taken http://10.0.0.3", "chat", "Pool chat already has an engine taken."),
        ("c http://10.0.0.9:8000/", "chat", "An engine with this URL is already registered."),
        ("c http://169.254.169.254", "chat", "metadata"),
        ("c http://8.8.8.8", "chat", "outside HEADWAY_ENGINE_NETWORKS"),
        ("c http://10.0.0.3 tcp://8.8.8.8:5557", "chat", "outside HEADWAY_ENGINE_NETWORKS"),
    ],
)
def test_line_that_cannot_be_registered_is_reported_with_the_reason(
    pool: Pool, bus: Bus, line: str, default: str, problem: str
) -> None:
    register_engine(pool, "taken", "http://10.0.0.9:8000", actor=PROGRAM)
    assert any(problem in item for item in shown(line, default)[0])


def test_lines_not_shown_as_valid_are_not_registered(pool: Pool, bus: Bus) -> None:
    lines = parse_lines(split_lines(GOOD))
    done = apply(lines, [lines[0].text], "chat", actor=PROGRAM, why="new rack")
    assert [engine.name for engine in done.engines] == ["a"]
    assert [line.text for line in done.lines] == [lines[1].text]
    engine = Engine.objects.get()
    assert engine.desired_state == "maintenance"
    assert JobRun.objects.get(job="preflight").shard == engine.pk
    assert AuditEvent.objects.get(verb="engine.register").why == "new rack"


def test_name_registered_after_the_preview_rejects_only_its_line(pool: Pool, bus: Bus) -> None:
    lines = parse_lines(split_lines(GOOD))
    register_engine(pool, "a", "http://10.0.0.7:8000", actor=PROGRAM)
    done = apply(lines, [line.text for line in lines], "chat", actor=PROGRAM, why="")
    assert [engine.name for engine in done.engines] == ["b"]
    assert done.lines[0].problems == ("Pool chat already has an engine a.",)


def test_operators_register_only_in_their_own_pools(pool: Pool, region: Region, policy: Policy, bus: Bus) -> None:
    other = Pool.objects.create(slug="agents", name="Agents", region=region, served_model="m", policy=policy)
    user = User.objects.create(username="op")
    RoleGrant.objects.create(user=user, role=Role.OPERATOR, pool=pool)
    RoleGrant.objects.create(user=user, role=Role.VIEWER, pool=other)
    actor = person(user, via=CONSOLE)
    assert shown("a chat http://10.0.0.1\nb agents http://10.0.0.2", "", actor) == [
        (),
        ("You cannot register engines in pool agents.",),
    ]


def test_unresolvable_names_are_problems_of_their_lines(pool: Pool, bus: Bus) -> None:
    with override_settings(ALLOW_LOOPBACK_ENGINES=False):
        problems = shown("a http://no-such-host.invalid:8000\nb http://10.0.0.2")
    assert "has no address" in problems[0][0]
    assert problems[1] == ()
