"""Lists: pages that neither repeat nor omit rows, filters, and a fixed number of queries."""

from __future__ import annotations

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.models.tenant import Tenant
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db
WHO = 3
"""Queries for session, account, and roles."""
MANY = 600
OTHER_RUNS = 2
"""The world's probe run, and a what-if that waits for its answer."""


def ids(api: Api, path: str, name: str = "engine_id") -> list[str]:
    """Return the ids on all pages."""
    names: list[str] = []
    address: str | None = f"/api/v1/{path}"
    while address:
        page = api.get(address).json()
        names += [row[name] for row in page["results"]]
        address = page["next"]
    return names


@pytest.fixture
def many(world: World) -> World:
    """Return the world with a thousand more objects of each kind."""
    pool, now = world.pools["a"], timezone.now()
    Engine.objects.bulk_create(
        Engine(pool=pool, name=f"m-{n:04d}", url=f"http://m{n}", connect_url=f"http://m{n}", engine_id=f"m-{n:04d}")
        for n in range(MANY)
    )
    Region.objects.bulk_create(Region(slug=f"r-{n:04d}", name="R") for n in range(MANY))
    Tenant.objects.bulk_create(Tenant(slug=f"t-{n:04d}", name="T") for n in range(MANY))
    ApiKey.objects.bulk_create(
        ApiKey(tenant=world.tenant, name="k", prefix="hw_x", sha256=f"{n:064x}") for n in range(MANY)
    )
    Pool.objects.bulk_create(
        Pool(slug=f"p-{n:04d}", name="P", region=world.region, served_model="m", policy=world.policies["a"])
        for n in range(MANY)
    )
    JobRun.objects.bulk_create(
        JobRun(job="probe", shard=n, state=JobState.DONE, started_at=now, finished_at=now) for n in range(MANY)
    )
    AuditEvent.objects.bulk_create(
        AuditEvent(at=now, actor_name="x", via="api", verb="engine.drain", object_kind="engine", object_id=str(n))
        for n in range(MANY)
    )
    return world


@pytest.mark.parametrize(
    "path",
    ["regions", "pools", "engines", "tenants", "keys", "policies", "policies/policy-a/versions", "jobs", "audit"],
)
def test_list_of_a_thousand_takes_a_fixed_number_of_queries(
    many: World, path: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    api = Api(many)
    # Versions ask for their policy first; pools ask once more for the costs learned on all of them.
    # Versions query their policy, and nine times for their release timelines.
    more = 10 if path.endswith("/versions") else int(path == "pools")
    with django_assert_num_queries(WHO + 1 + more):
        answer = api.get(f"{path}?limit=500")
    assert answer.status_code == 200
    few = {"policies": 2, "policies/policy-a/versions": 3}
    assert len(answer.json()["results"]) == few.get(path, 500)


@pytest.mark.parametrize("caller", ["viewer", "operator_a", "admin_key"])
def test_scope_check_takes_no_query_per_row(
    many: World, caller: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    api = Api(many, caller)
    with django_assert_num_queries(2 if caller == "admin_key" else WHO + 1):
        assert len(api.get("engines?limit=500").json()["results"]) == 500


@pytest.mark.parametrize("ordering", ["name", "-name", "registered_at", "-registered_at", "engine_id", "-engine_id"])
def test_pages_hold_every_row_once_in_order(many: World, ordering: str) -> None:
    listed = ids(Api(many), f"engines?limit=300&ordering={ordering}")
    assert len(listed) == len(set(listed)) == MANY + 2
    names = ids(Api(many), "engines?limit=500&ordering=name", "name")
    assert names == sorted(names, key=lambda name: (name == "e-b", name))


def test_rows_with_equal_times_are_listed_once(many: World) -> None:
    assert len(set(ids(Api(many), "jobs?limit=99", "id"))) == MANY + OTHER_RUNS
    assert len(set(ids(Api(many), "audit?limit=99&verb=engine.drain", "id"))) == MANY


def test_row_deleted_between_pages_hides_no_other(many: World) -> None:
    api = Api(many)
    first = api.get("engines?limit=10&ordering=engine_id").json()
    Engine.objects.filter(engine_id__in=[row["engine_id"] for row in first["results"]]).delete()
    assert api.get(first["next"]).json()["results"][0]["engine_id"] == "m-0008"


def test_cursor_is_rejected_under_another_order(many: World) -> None:
    api = Api(many)
    cursor = api.get("engines?limit=1").json()["next"].partition("cursor=")[2]
    assert api.get(f"engines?limit=1&ordering=engine_id&cursor={cursor}").status_code == 400


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("pool=pool-a", ["e-a"]),
        ("pool=pool-a&pool=pool-b", ["e-a", "e-b"]),
        ("pool=nowhere", []),
        ("region=here", ["e-a", "e-b"]),
        ("desired_state=draining", ["e-b"]),
        ("supervised=true", []),
        ("supervised=false&name=E-B", ["e-b"]),
        ("url=10.0.1", ["e-a"]),
    ],
)
def test_engines_are_filtered(world: World, query: str, expected: list[str]) -> None:
    Engine.objects.filter(engine_id="e-b").update(desired_state="draining")
    assert ids(Api(world), f"engines?{query}") == expected


def test_keys_versions_and_events_are_filtered(world: World) -> None:
    api = Api(world)
    api.post(f"keys/{world.keys['viewer_key'].key_id}/revoke", {})
    assert ids(api, "keys?revoked=true", "name") == ["viewer_key"]
    assert "viewer_key" not in ids(api, "keys?revoked=false", "name")
    assert ids(api, "policies/policy-a/versions?published=false", "number") == [3, 2]
    assert ids(api, "policies?pool=pool-b", "slug") == ["policy-b"]
    assert ids(api, "audit?verb=key.revoke", "actor") == ["admin"]
    assert ids(api, "audit?since=2999-01-01T00:00:00Z", "id") == []
    assert len(ids(api, "audit?until=2999-01-01&via=program", "id")) > 10
