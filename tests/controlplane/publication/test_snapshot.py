"""Snapshots are complete and versioned, and hold only committed states."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from django.db import connection, transaction
from django.test import override_settings

from controlplane.access.api_keys import create_api_key, revoke_api_key
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.platform.actor import program
from controlplane.platform.models.snapshot_version import SnapshotVersion
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.snapshot_change import TOPIC, record_change
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft, publish_version
from controlplane.publication.snapshot import build_snapshot, publish, publish_if_newer
from gateway.bus.bus import Bus
from gateway.bus.snapshot_store import FILE_NAME, SnapshotStore
from gateway.contracts.snapshot import decode_snapshot
from routing.policy.policy_document import RoutingPolicy

transactional = pytest.mark.django_db(transaction=True)


def version_on(bus: Bus) -> int | None:
    data = bus.latest(TOPIC)
    return decode_snapshot(data).version if data is not None else None


@transactional
def test_each_committed_change_raises_the_version_and_is_published(bus: Bus) -> None:
    versions = []
    for number in range(3):
        with transaction.atomic():
            Region.objects.create(slug=f"r{number}", name="R")
            record_change()
        versions.append(version_on(bus))
    assert versions == [1, 2, 3]


@transactional
def test_rolled_back_change_is_not_published(bus: Bus) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        record_change()
        raise RuntimeError
    assert version_on(bus) is None
    assert publish().version == 0


@pytest.mark.django_db(transaction=True)
def test_a_change_outside_a_transaction_is_rejected() -> None:
    with pytest.raises(transaction.TransactionManagementError):
        record_change()


@transactional
def test_many_simultaneous_writers_leave_the_newest_version_on_the_bus(bus: Bus) -> None:
    seen: list[int] = []
    bus.subscribe(TOPIC, lambda _topic, value: seen.append(decode_snapshot(value).version))

    def write() -> None:
        for _ in range(5):
            with transaction.atomic():
                record_change()
        connection.close()

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert seen == sorted(seen)
    assert version_on(bus) == 20


@transactional
def test_change_by_another_process_is_detected_by_its_version(bus: Bus, pool: Pool) -> None:
    publish()
    assert publish_if_newer() is None
    SnapshotVersion.objects.update_or_create(pk=1, defaults={"version": 7})
    published = publish_if_newer()
    assert published is not None
    assert published.version == version_on(bus) == 7
    assert publish_if_newer() is None


def test_snapshot_holds_the_whole_topology_and_the_live_policy(bus: Bus, pool: Pool) -> None:
    for name in ("b", "a"):
        Engine.objects.create(
            pool=pool,
            name=name,
            engine_id=name,
            url=f"http://10.0.0.1/{name}",
            connect_url=f"http://10.0.0.1:80/{name}",
        )
    version = draft(pool.policy, {"ttft_slo_s": 3.0}, actor=program("test"))
    publish_version(version, instead_of=None, actor=program("test"))
    draft(pool.policy, {"ttft_slo_s": 9.0}, actor=program("test"))
    snapshot = build_snapshot(at=1234.5)
    (entry,) = snapshot.pools
    assert [engine.engine_id for engine in snapshot.engines] == ["a", "b"]
    assert {engine.pool_id for engine in snapshot.engines} == {entry.pool_id} == {"chat"}
    assert (entry.policy_version, entry.policy.ttft_slo_s) == (1, 3.0)
    assert snapshot.published_at == 1234.5


def test_snapshot_takes_few_queries_however_large_the_fleet(
    bus: Bus, pool: Pool, django_assert_num_queries: pytest.FixtureRequest
) -> None:
    for number in range(20):
        url = f"http://10.0.0.{number}:80"
        Engine.objects.create(pool=pool, name=f"e{number}", engine_id=f"e{number}", url=url, connect_url=url)
    # savepoint, version, pools, learned costs, shadows, canaries, engines, keys, KV nodes, sovereignty, services,
    # release, call graph
    with django_assert_num_queries(15):
        build_snapshot(at=0.0)


def newer_version(policy: Policy) -> None:
    """Give the policy a live version that requires a newer program."""
    number = policy.versions.count() + 1
    document = {"schema_version": 99}
    policy.live_version = PolicyVersion.objects.create(policy=policy, number=number, routing_document=document)
    policy.save()


def test_an_unreadable_policy_blocks_no_other_pool(
    bus: Bus, pool: Pool, tenant: Tenant, caplog: pytest.LogCaptureFixture
) -> None:
    actor = program("test")
    publish_version(draft(pool.policy, {"ttft_slo_s": 3.0}, actor=actor), instead_of=None, actor=actor)
    key, _ = create_api_key(tenant, "k", actor=actor)
    assert len(publish().api_keys) == 1
    newer_version(pool.policy)
    revoke_api_key(key, actor=actor)
    pool.name = "Renamed"
    pool.save()
    for _ in range(2):
        snapshot = publish()
        (entry,) = snapshot.pools
        assert snapshot.api_keys == ()
        assert entry.name == "Renamed"
        assert (entry.policy_version, entry.policy.ttft_slo_s) == (1, 3.0)
    assert "the policy of pool chat cannot be read" in caplog.text


def test_last_valid_policy_is_read_from_disk_after_a_restart(bus: Bus, pool: Pool, tmp_path: Path) -> None:
    actor = program("test")
    publish_version(draft(pool.policy, {"ttft_slo_s": 3.0}, actor=actor), instead_of=None, actor=actor)
    SnapshotStore(tmp_path, 3600.0).save(build_snapshot(at=1000.0), 1000.0)
    newer_version(pool.policy)
    with override_settings(STATE_DIR=tmp_path):
        assert build_snapshot(at=1001.0).pools[0].policy.ttft_slo_s == 3.0
        (tmp_path / FILE_NAME).unlink()
        (entry,) = build_snapshot(at=1001.0).pools
    assert (entry.policy_version, entry.policy) == (0, RoutingPolicy())
