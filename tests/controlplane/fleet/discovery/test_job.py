"""Engines follow the list of a discovery source. Outages, people, and other sources keep their engines."""

from __future__ import annotations

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from controlplane.fleet import engine_lifecycle
from controlplane.fleet.discovery import job, kubernetes_source, reconcile
from controlplane.fleet.discovery.found_engine import DiscoveryOutageError, FoundEngine, Presence
from controlplane.fleet.discovery.job import discovery, discovery_problems, scan_source, watched_discovery
from controlplane.fleet.discovery.reconcile import VANISHED_SCANS
from controlplane.fleet.discovery.setting import DiscoverySource
from controlplane.fleet.engine_lifecycle import EngineReading, set_desired_state
from controlplane.fleet.engine_registration import register_engine
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.preflight.lifecycle import preflight_of
from controlplane.platform.actor import program
from controlplane.platform.jobs.wake import TOPIC as WAKE
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun, JobState
from gateway.bus.bus import Bus
from tests.controlplane.fleet.discovery.cluster import PODS as PODS_PATH
from tests.controlplane.fleet.discovery.cluster import cluster
from tests.patience import wait_until

pytestmark = pytest.mark.django_db

SOURCE = DiscoverySource("chat", "dns", "vllm.internal", port=8000)
ONE, TWO = (FoundEngine(f"e-{n}", f"http://10.1.0.{n}:8000") for n in (1, 2))
PERSON = program("somebody")


@pytest.fixture(autouse=True)
def allowed(settings: Settings, pool: Pool) -> None:
    settings.DISCOVERY = (SOURCE,)
    pool.engine_networks = "10.1.0.0/16"
    pool.save()


def scan(*listed: FoundEngine, source: DiscoverySource = SOURCE) -> None:
    scan_source(source, 0, lambda _: list(listed))


def outage(_: DiscoverySource) -> list[FoundEngine]:
    raise DiscoveryOutageError("the name server is away")


def states() -> dict[str, str]:
    return dict(Engine.objects.values_list("name", "desired_state"))


def serve() -> None:
    """Pass all waiting preflights."""
    for engine in Engine.objects.filter(desired_state=DesiredState.MAINTENANCE):
        set_desired_state(engine, DesiredState.READY, actor=program("preflight"))
    JobRun.objects.filter(job="preflight").update(state=JobState.DONE, finished_at=timezone.now())


def audited(engine: str) -> list[tuple[str, str]]:
    """Return verbs and reasons of the audit events of discovery."""
    events = AuditEvent.objects.filter(actor_name="discovery", object_id=engine).order_by("pk")
    return [(event.verb, event.why) for event in events]


def test_listed_engine_is_registered_and_checked_before_it_serves(pool: Pool) -> None:
    scan(ONE)
    engine = Engine.objects.get()
    assert (engine.pool, engine.source, engine.desired_state) == (pool, "dns://vllm.internal:8000", "maintenance")
    seen = preflight_of(engine)
    assert seen is not None and seen.then_ready
    assert audited(engine.engine_id)[0] == ("engine.register", "Listed by dns://vllm.internal:8000")
    scan(ONE)
    assert Engine.objects.count() == 1


def test_engine_missing_from_several_scans_is_drained_and_deleted_when_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scan(ONE, TWO)
    serve()
    gone = Engine.objects.get(name="e-2").engine_id
    for _ in range(VANISHED_SCANS - 1):
        scan(ONE)
    assert states() == {"e-1": "ready", "e-2": "ready"}
    scan(ONE)
    assert states() == {"e-1": "ready", "e-2": "draining"}
    scan(ONE)
    assert "e-2" in states(), "its work in flight is unknown"
    monkeypatch.setattr(engine_lifecycle, "engine_reading", lambda *_: EngineReading(3))
    scan(ONE)
    assert "e-2" in states(), "it has work"
    monkeypatch.setattr(engine_lifecycle, "engine_reading", lambda *_: EngineReading(0))
    scan(ONE)
    assert states() == {"e-1": "ready"}
    assert [verb for verb, _ in audited(gone)][-2:] == ["engine.drain", "engine.delete"]


def test_engine_missing_from_occasional_scans_stays(pool: Pool) -> None:
    scan(ONE, TWO)
    serve()
    for _ in range(VANISHED_SCANS):
        scan(ONE)
        if Engine.objects.get(name="e-2").desired_state == "ready":
            scan(ONE, TWO)
    assert states() == {"e-1": "ready", "e-2": "ready"}


def test_outage_removes_no_engine_and_is_reported() -> None:
    scan(ONE, TWO)
    serve()
    for _ in range(VANISHED_SCANS + 1):
        scan_source(SOURCE, 0, outage)
    assert states() == {"e-1": "ready", "e-2": "ready"}
    (problem,) = discovery_problems({"chat"})
    assert problem.endswith("the name server is away. 2 engines kept as last listed.")
    assert discovery_problems({"other"}) == []
    scan(ONE, TWO)
    assert discovery_problems({"chat"}) == []


PODS = DiscoverySource("chat", "kubernetes", "llm", "app=vllm", 8000)


def test_pod_without_its_label_gets_no_new_work_after_the_next_scan(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DISCOVERY = (PODS,)
    monkeypatch.setattr(engine_lifecycle, "engine_reading", lambda *_: EngineReading(0))
    scan(ONE, TWO, source=PODS)
    serve()
    for _ in range(VANISHED_SCANS - 1):
        scan(TWO, source=PODS)
        assert states() == {"e-1": "draining", "e-2": "ready"}
    scan(ONE, TWO, source=PODS)
    assert states() == {"e-1": "maintenance", "e-2": "ready"}
    serve()
    assert states() == {"e-1": "ready", "e-2": "ready"}
    for _ in range(VANISHED_SCANS):
        scan(TWO, source=PODS)
    assert states() == {"e-2": "ready"}


def test_terminating_engine_is_drained_at_once() -> None:
    scan(ONE)
    serve()
    scan(FoundEngine(ONE.name, ONE.url, presence=Presence.LEAVING))
    assert states() == {"e-1": "draining"}


def waiting(listed: FoundEngine) -> FoundEngine:
    """Return the listed engine in a state that is not ready."""
    return FoundEngine(listed.name, listed.url, presence=Presence.WAITING)


def test_engine_that_is_not_ready_is_not_registered() -> None:
    scan(waiting(ONE))
    assert not Engine.objects.exists()


def test_engine_that_becomes_unready_is_drained_not_deleted_and_checked_on_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scan(ONE, TWO)
    serve()
    monkeypatch.setattr(engine_lifecycle, "engine_reading", lambda *_: EngineReading(0))
    for _ in range(VANISHED_SCANS + 1):
        scan(waiting(ONE), TWO)
        assert states() == {"e-1": "draining", "e-2": "ready"}
    one = Engine.objects.get(name="e-1")
    assert audited(one.engine_id)[-1] == ("engine.drain", "Not ready, as dns://vllm.internal:8000 reports")
    scan(ONE, TWO)
    serve()
    assert states() == {"e-1": "ready", "e-2": "ready"}


def test_last_engines_of_a_pool_serve_even_if_none_is_ready(pool: Pool) -> None:
    scan(ONE, TWO)
    serve()
    scan(waiting(ONE), waiting(TWO))
    assert states() == {"e-1": "ready", "e-2": "ready"}
    (problem,) = discovery_problems({"chat"})
    assert "no engine is ready; 2 engines serve until another one is" in problem
    register_engine(pool, "by-hand", "http://10.1.0.9:8000", actor=PERSON)
    serve()
    set_desired_state(Engine.objects.get(name="by-hand"), DesiredState.READY, actor=PERSON)
    scan(waiting(ONE), waiting(TWO))
    assert states() == {"e-1": "draining", "e-2": "draining", "by-hand": "ready"}
    assert discovery_problems({"chat"}) == []


def test_engine_drained_by_a_person_stays_drained_whatever_its_readiness() -> None:
    scan(ONE, TWO)
    serve()
    set_desired_state(Engine.objects.get(name="e-1"), DesiredState.DRAINING, actor=PERSON)
    scan(waiting(ONE), TWO)
    scan(ONE, TWO)
    assert states() == {"e-1": "draining", "e-2": "ready"}


def test_returning_engine_is_checked_and_serves_unless_a_person_drained_it() -> None:
    scan(ONE, TWO)
    serve()
    for _ in range(VANISHED_SCANS):
        scan(ONE)
    first = Engine.objects.get(name="e-1")
    set_desired_state(first, DesiredState.DRAINING, actor=PERSON)
    scan(ONE, TWO)
    assert states() == {"e-1": "draining", "e-2": "maintenance"}
    seen = preflight_of(Engine.objects.get(name="e-2"))
    assert seen is not None and seen.unfinished and seen.then_ready


def test_pod_with_a_new_address_is_checked_before_it_serves_again() -> None:
    scan(FoundEngine(ONE.name, ONE.url, {"kv_events_endpoint": "tcp://10.1.0.1:5557"}))
    serve()
    scan(FoundEngine(ONE.name, "http://10.1.0.77:8000"))
    engine = Engine.objects.get()
    assert (engine.url, engine.kv_events_endpoint) == ("http://10.1.0.77:8000", "")
    assert engine.desired_state == "maintenance"


def test_failed_preflight_is_repeated_later(monkeypatch: pytest.MonkeyPatch) -> None:
    scan(ONE)
    engine = Engine.objects.get()
    run = JobRun.objects.get(job="preflight")
    failed = [{"key": "healthy", "state": "failed", "sentence": "The health check fails."}]
    JobRun.objects.update_or_create(
        pk=run.pk,
        defaults={"state": JobState.FAILED, "finished_at": timezone.now(), "progress": {"steps": failed}},
    )
    scan(ONE)
    assert preflight_of(engine).run_id == run.pk  # type: ignore[union-attr]
    monkeypatch.setattr(reconcile, "AGAIN_AFTER", reconcile.AGAIN_AFTER * 0)
    scan(ONE)
    assert preflight_of(engine).run_id > run.pk  # type: ignore[union-attr]


def test_engines_of_people_and_other_sources_are_unchanged(pool: Pool) -> None:
    register_engine(pool, "by-hand", ONE.url, actor=PERSON)
    other = DiscoverySource("chat", "file", "/etc/chat.txt")
    scan_source(other, 1, lambda _: [FoundEngine("theirs", "http://10.1.0.9:8000")])
    serve()
    for _ in range(VANISHED_SCANS + 1):
        scan(ONE, TWO)
    assert states() == {"by-hand": "ready", "theirs": "ready", "e-2": "maintenance"}


def test_forbidden_address_is_reported_and_the_others_are_registered() -> None:
    scan(FoundEngine("bad", "http://10.9.0.1:8000"), FoundEngine("no slug", "http://10.1.0.8:8000"), ONE)
    assert set(states()) == {"e-1"}
    (problem,) = discovery_problems({"chat"})
    assert "bad: 10.9.0.1 is outside" in problem and "no slug: " in problem


def test_missing_pool_is_reported() -> None:
    scan(ONE, source=DiscoverySource("none", "dns", "vllm.internal", port=8000))
    assert not Engine.objects.exists()
    assert "There is no pool none" in discovery_problems({"none"})[0]


def test_watched_sources_have_a_job_that_does_not_count_scans_of_others(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DISCOVERY = (SOURCE, WATCHED)
    scanned: list[str] = []
    monkeypatch.setattr(job, "scan_source", lambda source, shard, _: scanned.append(f"{shard} {source.kind}"))
    discovery()
    assert scanned == ["0 dns"]
    watched_discovery()
    assert scanned == ["0 dns", "1 kubernetes"]


WATCHED = DiscoverySource("chat", "kubernetes", "llm", "app=vllm", 8000)


def test_deleted_pod_wakes_the_job_which_drains_its_engine(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, bus: Bus
) -> None:
    settings.DISCOVERY = (WATCHED,)
    woken: list[bytes] = []
    bus.subscribe(WAKE, lambda _, jobs: woken.append(jobs))
    with cluster() as (server, connection):
        monkeypatch.setattr(kubernetes_source, "_connection", lambda: connection)
        monkeypatch.setattr(kubernetes_source, "_views", {})
        server.pod("e-1", "10.1.0.1")
        server.pod("e-2", "10.1.0.2")
        watched_discovery()
        serve()
        assert states() == {"e-1": "ready", "e-2": "ready"}
        woken.clear()
        server.delete(PODS_PATH, "e-1")
        wait_until(lambda: b"watched_discovery" in woken)
        watched_discovery()
        assert states() == {"e-1": "draining", "e-2": "ready"}
        kubernetes_source._views.popitem()[1].close()
