"""The job stores each episode once, with its timeline, through restarts and lost leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest

from controlplane.incidents.handling import close, take_state_changes
from controlplane.incidents.job import JOB, detect, forget_incidents
from controlplane.incidents.models.incident import Incident, IncidentEntry
from controlplane.incidents.notices import TOPIC, decode_notices, publish_notices
from controlplane.incidents.watch import IncidentWatch, cut_off
from controlplane.kv_nodes.models.kv_node import KvNode, KvNodeState
from controlplane.platform.actor import command
from controlplane.platform.jobs.lease import acquire
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun
from gateway.bus.bus import Bus
from gateway.contracts.fleet_sample import EngineFaults, FleetSample, Lateness, RegionLink, RegionSample
from gateway.contracts.outcomes import OutcomeCounts, PoolOutcomes
from tests.controlplane.incidents.scene import JobScene
from tests.web.fake_fleet import FakeFleet

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bus")]


def test_an_incident_is_stored_once_through_restarts_and_closes_by_itself(bus: Bus) -> None:
    scene = JobScene()
    incident = scene.flood()
    assert (incident.state, incident.cause, incident.certain) == ("open", "tenant_flood", True)
    assert incident.title == "1 in 3 requests to pool-0 is late: Tenant acme sends a flood of requests"
    scene.restart()
    scene.run(60)
    hit = Incident.objects.get().detail["hit"]["all"][""]
    assert hit[1] > incident.detail["hit"]["all"][""][1]
    scene.calm()
    incident.refresh_from_db()
    assert incident.state == "closed"
    assert incident.closed_at == incident.last_bad_at
    kinds = list(IncidentEntry.objects.values_list("kind", flat=True))
    assert (kinds[0], kinds[-1], kinds.count("opened")) == ("opened", "closed", 1)
    verbs = AuditEvent.objects.filter(verb__startswith="incident.").values_list("verb", flat=True)
    assert sorted(verbs) == ["incident.close", "incident.open"]
    publish_notices(scene.at)
    (notice,) = decode_notices(bus.latest(TOPIC) or b"").notices
    assert notice.closed == incident.closed_at.timestamp()
    publish_notices(scene.at + timedelta(minutes=11))
    assert decode_notices(bus.latest(TOPIC) or b"").notices == ()


def test_a_quiet_fleet_takes_no_lease() -> None:
    scene = JobScene()
    scene.run(300)
    assert not JobRun.objects.filter(job=JOB).exists()


def test_another_holder_of_the_lease_keeps_this_process_from_storing() -> None:
    scene = JobScene()
    scene.run(300)
    scene.world.pool().late = 0.6
    for _ in range(60):
        scene.world.step()
    assert acquire(JOB, "another process", timedelta(seconds=60), clock=lambda: scene.at) is not None
    assert not detect(scene.watch, scene.at)
    assert not Incident.objects.exists()


def test_an_incident_closed_by_a_person_opens_no_other_while_its_trouble_lasts() -> None:
    scene = JobScene()
    incident = scene.flood()
    assert close(incident, actor=command("test"))
    scene.run(120)
    assert Incident.objects.get().closed_by == "test"
    scene.calm()
    assert JobRun.objects.get(job=JOB).memory["episodes"] == []


def test_each_change_of_state_is_taken_once() -> None:
    scene = JobScene()
    scene.flood()
    assert "opened" in [entry.kind for entry in take_state_changes(scene.at)]
    assert take_state_changes(scene.at) == []
    scene.calm()
    assert [entry.kind for entry in take_state_changes(scene.at)][-1] == "closed"


def test_old_closed_incidents_are_deleted_and_open_ones_stay() -> None:
    scene = JobScene()
    scene.flood()
    later = scene.at + timedelta(days=91)
    assert forget_incidents(later) == 0
    scene.calm()
    assert forget_incidents(later) == 1


EU_US, ASIA_EU, ASIA_US = ("eu", "us"), ("asia", "eu"), ("asia", "us")


@pytest.mark.parametrize(
    ("regions", "cut", "outages"),
    [
        (("us", "eu"), [EU_US], [("link", "eu – us")]),
        (("us", "eu", "asia"), [EU_US], [("link", "eu – us")]),
        (("us", "eu", "asia"), [EU_US, ASIA_EU], [("region", "eu")]),
        (("us", "eu", "asia"), [EU_US, ASIA_EU, ASIA_US], [("region", "asia"), ("region", "eu"), ("region", "us")]),
    ],
    ids=["one of one link", "one of three links", "one region", "all regions"],
)
@pytest.mark.parametrize("silent", ["", "eu"], ids=["all report", "eu reports nothing"])
def test_a_region_without_links_is_cut_off(
    regions: tuple[str, ...], cut: list[tuple[str, str]], outages: list[tuple[str, str]], silent: str
) -> None:
    watch = IncidentWatch()
    watch.take(sample_of(10.0, regions, []))
    for at in (20.0, 21.0):
        watch.take(sample_of(at, [item for item in regions if item != silent], cut, regions))
    newest = watch.log.newest
    assert newest is not None
    assert [(item.kind, item.name, item.since) for item in newest.outages] == [(*item, 20.0) for item in outages]
    watch.take(sample_of(30.0, regions, []))
    assert watch.log.newest is not None
    assert watch.log.newest.outages == ()


def sample_of(
    at: float, reporting: Sequence[str], cut: list[tuple[str, str]], regions: Sequence[str] = ()
) -> FleetSample:
    """Return a sample in which these regions report their links."""
    samples = []
    for region in reporting:
        others = [item for item in regions or reporting if item != region]
        links = [
            RegionLink(region=item, address="", up=(min(item, region), max(item, region)) not in cut) for item in others
        ]
        samples.append(
            RegionSample(
                region=region, tag="", local_per_s=0.0, forwarded_per_s={}, links=tuple(links),
                epochs={}, serves=(region,),
            )
        )  # fmt: skip
    return msgspec.structs.replace(FakeFleet(seed=1).sample_at(0.0, at), at=at, seq=int(at), regions=tuple(samples))


def test_silent_nodes_are_cut_off() -> None:
    KvNode.objects.create(name="kv-1", address="h:1", state=KvNodeState.SILENT)
    KvNode.objects.create(name="kv-2", address="h:2", state=KvNodeState.GONE)
    assert cut_off() == {("node", "kv-1")}


def test_samples_become_readings_with_lateness_outcomes_and_faults() -> None:
    watch, fleet = IncidentWatch(), FakeFleet(4, 1)
    for number, second in enumerate((0.0, 1.0, 7.0, 8.0)):
        sample = fleet.sample_at(second, 1_800_000_000.0)
        counts = OutcomeCounts(number, 2, 3, 4, 9)
        outcomes = PoolOutcomes(total=counts, tenants={"acme": counts})
        engine = msgspec.structs.replace(
            sample.engines[0], faults=EngineFaults(restarts=2, tokenizer_late=5, evictions=7)
        )
        pool = msgspec.structs.replace(sample.pools[0], outcomes=outcomes)
        late = Lateness(since=1_800_000_007.5, lapses=1, away_s=0.5, rejects=True) if second == 8.0 else None
        watch.take(msgspec.structs.replace(sample, engines=(engine,), pools=(pool,), lateness=late, seq=number))
    signs = watch.log.newest
    assert signs is not None
    (pool_id,), (engine_id,) = signs.pools, signs.engines
    assert signs.pools[pool_id].tables["tenants"]["acme"] == (3, 2, 3, 4)
    reading = signs.engines[engine_id]
    assert (reading.restarts, reading.tokenizer_late, reading.removed_blocks) == (2, 5, 7)
    # Six seconds without a sample, and half a second that the gateway reported.
    assert (signs.away_s, signs.rejects) == (6.5, True)
