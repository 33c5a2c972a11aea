"""Constraints of the database reject inconsistent rows."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, models, transaction
from django.utils import timezone

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.job_run import JobRun
from controlplane.platform.models.snapshot_version import SnapshotVersion
from controlplane.platform.models.tenant import Tenant
from controlplane.policies.models.policy_version import PolicyVersion

pytestmark = pytest.mark.django_db


def rejected(model: type[models.Model], **values: Any) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        model._default_manager.create(**values)


def engine(pool: Pool, **values: Any) -> dict[str, Any]:
    return {"pool": pool, "name": "a", "url": "http://10.0.0.1:80", "connect_url": "http://10.0.0.1:80", **values}


def test_slugs_are_unique(region: Region, tenant: Tenant) -> None:
    rejected(Region, slug=region.slug, name="again")
    rejected(Tenant, slug=tenant.slug, name="again")


@pytest.mark.parametrize(
    "values",
    [
        {"key_source": "guess"},
        {"block_tokens": 0},
        {"block_tokens": 65_537},
        {"block_bytes": 0},
        {"max_prompt_tokens": 0},
        {"weight": 1001},
        {"served_model": ""},
    ],
)
def test_pool_settings_must_be_within_range(pool: Pool, values: dict[str, Any]) -> None:
    rejected(
        Pool, **{"slug": "x", "name": "X", "region": pool.region, "policy": pool.policy, "served_model": "m", **values}
    )


@pytest.mark.parametrize(
    "values", [{"desired_state": "dead"}, {"speed": 0}, {"speed": -1.0}, {"engine_id": "a/b"}, {"engine_id": ""}]
)
def test_engine_settings_must_be_within_range(pool: Pool, values: dict[str, Any]) -> None:
    rejected(Engine, **engine(pool, **values))


def test_two_engines_cannot_share_name_url_or_id(pool: Pool) -> None:
    first = Engine.objects.create(**engine(pool, engine_id="one"))
    rejected(Engine, **engine(pool, url="http://10.0.0.2:80"))
    rejected(Engine, **engine(pool, name="b"))
    rejected(Engine, **engine(pool, name="b", url="http://10.0.0.2:80", engine_id=first.engine_id))


def test_new_engine_ids_differ(pool: Pool) -> None:
    ids = [Engine(**engine(pool)).engine_id for _ in range(100)]
    assert len(set(ids)) == 100


@pytest.mark.parametrize("sha256", ["", "hw_plain", "A" * 64, "0" * 63])
def test_an_api_key_is_stored_as_a_hash(tenant: Tenant, sha256: str) -> None:
    rejected(ApiKey, tenant=tenant, name="x", prefix="hw_", sha256=sha256)


def test_policy_versions_are_unique_and_start_at_1(pool: Pool) -> None:
    PolicyVersion.objects.create(policy=pool.policy, number=1, routing_document={})
    rejected(PolicyVersion, policy=pool.policy, number=1, routing_document={})
    rejected(PolicyVersion, policy=pool.policy, number=0, routing_document={})


def test_a_job_has_one_active_run_per_shard() -> None:
    now = timezone.now()
    JobRun.objects.create(job="probe", started_at=now)
    JobRun.objects.create(job="probe", shard=1, started_at=now)
    JobRun.objects.create(job="probe", started_at=now, finished_at=now, state="done")
    rejected(JobRun, job="probe", started_at=now)


def test_exactly_the_inactive_runs_have_an_end() -> None:
    now = timezone.now()
    rejected(JobRun, job="a", started_at=now, finished_at=now)
    rejected(JobRun, job="b", started_at=now, state="done")
    rejected(JobRun, job="c", started_at=now, state="lost", finished_at=now)


def test_snapshot_version_has_one_row() -> None:
    SnapshotVersion.objects.create(version=3)
    rejected(SnapshotVersion, id=2)
