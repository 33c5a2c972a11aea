"""Starts on Kubernetes, from action to engine: names that resolve late, never, or to a new address."""

from __future__ import annotations

import socket
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from controlplane.automation.actuators.kubernetes import KubernetesActuator
from controlplane.automation.jobs import engine_actions as job
from controlplane.automation.models.engine_action import EngineAction
from controlplane.automation.plan_actions import request_start
from controlplane.fleet.actuator_settings import KubernetesSettings
from controlplane.fleet.engine_addresses import follow_addresses
from controlplane.fleet.models.engine import Engine
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.publication.snapshot import build_snapshot
from tests.controlplane.automation.test_action_steps import live, requested
from tests.controlplane.automation.world import World

pytestmark = pytest.mark.django_db

SETTINGS = KubernetesSettings(
    namespace="llm", stateful_sets={"mixed": "vllm"}, kv_events_endpoint="tcp://{pod}.{set}.{namespace}.svc:5557"
)


class Apps:
    """Holds the scale of one StatefulSet."""

    def __init__(self) -> None:
        self.replicas = 3
        self.seen = [3]

    def read_namespaced_stateful_set_scale(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(
            spec=SimpleNamespace(replicas=self.replicas), metadata=SimpleNamespace(resource_version="1")
        )

    def patch_namespaced_stateful_set_scale(self, _name: str, _namespace: str, body: Any, **_: Any) -> None:
        self.replicas = body["spec"]["replicas"]
        self.seen.append(self.replicas)


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the DNS records by pod. Other pods have no address."""
    records: dict[str, str] = {}

    def getaddrinfo(host: str, port: int, **_: Any) -> Any:
        pod = host.partition(".")[0]
        if pod not in records:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (records[pod], port))]

    monkeypatch.setattr("controlplane.fleet.engine_url.socket.getaddrinfo", getaddrinfo)
    return records


@pytest.fixture
def apps(monkeypatch: pytest.MonkeyPatch) -> Apps:
    apps = Apps()
    monkeypatch.setattr(job, "actuator_of", lambda _pool: KubernetesActuator(SETTINGS, apps))  # type: ignore[arg-type]
    return apps


def start(world: World) -> EngineAction:
    return requested(world, request_start, world.pool, "mixed")


def test_pod_with_a_late_dns_name_is_registered(world: World, apps: Apps, dns: dict[str, str]) -> None:
    action = start(world)
    live(world, 60)
    action.refresh_from_db()
    assert (action.state, apps.replicas) == ("sent", 4)
    assert "vllm-3.vllm.llm.svc has no address" in action.says
    dns["vllm-3"] = "10.0.0.3"
    live(world, 40)
    action.refresh_from_db()
    assert (action.state, action.engine_name, apps.seen) == ("done", "vllm-3", [3, 4])


def test_pod_that_never_starts_is_removed_with_a_reason(world: World, apps: Apps, dns: dict[str, str]) -> None:
    action = start(world)
    live(world, 5)
    world.now = action.deadline_at
    live(world, 3)
    action.refresh_from_db()
    assert (action.state, apps.seen) == ("failed", [3, 4, 3])
    assert "has no address" in action.says
    assert action.says.endswith("StatefulSet vllm is back at 3 replicas")


def test_starts_that_fail_together_leave_no_pod(world: World, apps: Apps, dns: dict[str, str]) -> None:
    actions = [start(world) for _ in range(3)]
    live(world, 10)
    assert apps.replicas == 6
    world.now = actions[0].deadline_at
    live(world, 20)
    assert apps.replicas == 3
    for action in actions:
        action.refresh_from_db()
        assert action.state == "failed"


def test_serving_pod_is_never_removed(world: World, apps: Apps, dns: dict[str, str]) -> None:
    lost = start(world)
    live(world, 5)
    dns["vllm-4"] = "10.0.0.4"
    well = start(world)
    live(world, 30)
    well.refresh_from_db()
    assert (well.state, apps.replicas) == ("done", 5)
    world.now = lost.deadline_at
    live(world, 5)
    lost.refresh_from_db()
    assert (lost.state, apps.replicas) == ("failed", 5)
    assert "vllm-4 is above it" in lost.says
    # The next start gets the pod that was left behind.
    dns["vllm-3"] = "10.0.0.3"
    again = start(world)
    live(world, 30)
    again.refresh_from_db()
    assert (again.state, again.engine_name, apps.replicas) == ("done", "vllm-3", 5)


def test_engine_that_serves_at_its_deadline_is_kept(world: World, apps: Apps, dns: dict[str, str]) -> None:
    dns["vllm-3"] = "10.0.0.3"
    action = start(world)
    world.say(action.key, reachable=False, healthy=False, reason="loads weights")
    live(world, 10)
    world.say(action.key, reachable=True, healthy=True)
    world.now = action.deadline_at
    live(world, 5)
    action.refresh_from_db()
    assert (action.state, apps.replicas) == ("done", 4)
    assert Engine.objects.filter(engine_id=action.key).exists()


def test_engine_whose_address_changes_is_followed_and_published(world: World, apps: Apps, dns: dict[str, str]) -> None:
    dns["vllm-3"] = "10.0.0.3"
    action = start(world)
    live(world, 10)
    before = Engine.objects.get(engine_id=action.key)
    assert follow_addresses() == 0
    dns["vllm-3"] = "10.0.7.9"
    assert follow_addresses() == 1
    after = Engine.objects.get(engine_id=action.key)
    assert (before.connect_url, after.connect_url) == ("http://10.0.0.3:8000", "http://10.0.7.9:8000")
    assert after.kv_events_endpoint == "tcp://10.0.7.9:5557"
    (entry,) = (engine for engine in build_snapshot(at=0.0).engines if engine.engine_id == action.key)
    assert (entry.url, entry.kv_events_endpoint) == ("http://10.0.7.9:8000", "tcp://10.0.7.9:5557")
    assert AuditEvent.objects.filter(verb="engine.move", object_id=action.key).count() == 1
    assert follow_addresses() == 0


@pytest.mark.parametrize("address", ["169.254.169.254", "127.0.0.1", "8.8.8.8"])
def test_change_to_a_forbidden_address_is_not_followed(
    world: World, apps: Apps, dns: dict[str, str], address: str, settings: Any
) -> None:
    settings.ALLOW_LOOPBACK_ENGINES = False
    dns["vllm-3"] = "10.0.0.3"
    action = start(world)
    live(world, 10)
    dns["vllm-3"] = address
    assert follow_addresses() == 0
    del dns["vllm-3"]
    assert follow_addresses() == 0
    assert Engine.objects.get(engine_id=action.key).connect_url == "http://10.0.0.3:8000"


def test_rollback_is_retried_if_the_cluster_does_not_respond(
    world: World, apps: Apps, dns: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    action = start(world)
    live(world, 5)
    world.now = action.deadline_at
    with monkeypatch.context() as patch:
        patch.setattr(
            apps, "read_namespaced_stateful_set_scale", lambda *_, **__: (_ for _ in ()).throw(OSError("away"))
        )
        live(world, 5)
        action.refresh_from_db()
        assert action.state == "sent"
    live(world, timedelta(minutes=1).total_seconds())
    action.refresh_from_db()
    assert (action.state, apps.replicas) == ("failed", 3)
