"""StatefulSets through the official client, with exchanges like those of the API server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone
from kubernetes import client

from controlplane.automation.actuators.actuator import ActionProgress, ActuatorError, RejectedActionError
from controlplane.automation.actuators.kubernetes import KubernetesActuator
from controlplane.automation.models.engine_action import EngineAction
from controlplane.fleet.actuator_settings import KubernetesSettings
from controlplane.fleet.models.pool import Pool
from tests.controlplane.automation.actuators.http_exchange import Asked, http_server

pytestmark = pytest.mark.django_db

SETTINGS = KubernetesSettings(
    namespace="llm", stateful_sets={"mixed": "vllm"}, kv_events_endpoint="tcp://{pod}.{set}.{namespace}.svc:5557"
)
SCALE = re.compile(r"/apis/apps/v1/namespaces/llm/statefulsets/([a-z-]+)/scale")


class ApiServer:
    """Responds as Kubernetes does for the scale subresource: versions count up, stale ones conflict."""

    def __init__(self) -> None:
        self.replicas = 3
        self.version = 41
        self.fails: int | None = None
        self.moved_before_patch = False

    def answer(self, method: str, path: str, _headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if self.fails is not None:
            return self.fails, self._status(self.fails)
        match = SCALE.fullmatch(path)
        if match is None or match[1] != "vllm":
            return 404, self._status(404)
        if method == "PATCH":
            wanted = json.loads(body)
            if self.moved_before_patch or wanted["metadata"]["resourceVersion"] != str(self.version):
                return 409, self._status(409)
            self.replicas = wanted["spec"]["replicas"]
            self.version += 1
        return 200, json.dumps(self._scale()).encode()

    def _scale(self) -> dict[str, Any]:
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {
                "name": "vllm",
                "namespace": "llm",
                "uid": "0b1b9d7c-7f0c-4a83-a5a1-3d0b2fdc3b5e",
                "resourceVersion": str(self.version),
                "creationTimestamp": "2026-11-01T08:00:00Z",
            },
            "spec": {"replicas": self.replicas},
            "status": {"replicas": self.replicas, "selector": "app=vllm"},
        }

    def _status(self, code: int) -> bytes:
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
        return json.dumps(status).encode()


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
def cluster(server: ApiServer) -> Iterator[tuple[KubernetesActuator, list[Asked]]]:
    with http_server(server.answer) as (url, asked), client.ApiClient(client.Configuration(host=url)) as connection:
        connection.configuration.retries = False
        yield KubernetesActuator(SETTINGS, client.AppsV1Api(connection)), asked


def action(pool: Pool, key: str, kind: str = "start", name: str = "", **fields: Any) -> EngineAction:
    now = timezone.now()
    known = {"role": "mixed", "by": "scaling", "requested_at": now, "next_try_at": now, "deadline_at": now}
    return EngineAction.objects.create(key=key, pool=pool, kind=kind, engine_name=name, **{**known, **fields})


def keep(one: EngineAction, state: Any) -> None:
    one.actuator_state = {**one.actuator_state, **state}
    one.save()


def test_start_stores_its_target_scale_before_the_patch_and_names_the_engine_by_pod(
    pool: Pool, server: ApiServer, cluster: tuple[KubernetesActuator, list[Asked]]
) -> None:
    actuator, asked = cluster
    one = action(pool, "k1")
    first = actuator.start(one)
    assert (dict(first.actuator_state), first.engine, server.replicas) == ({"replicas": 4}, None, 3)
    keep(one, first.actuator_state)
    second = actuator.start(one)
    assert server.replicas == 4
    assert second.engine is not None
    assert second.engine.name == "vllm-3"
    assert second.engine.url == "http://vllm-3.vllm.llm.svc:8000"
    assert second.engine.kv_events_endpoint == "tcp://vllm-3.vllm.llm.svc:5557"
    patch = next(item for item in asked if item[0] == "PATCH")
    assert json.loads(patch[3]) == {"metadata": {"resourceVersion": "41"}, "spec": {"replicas": 4}}


def test_repeating_a_start_has_one_effect(
    pool: Pool, server: ApiServer, cluster: tuple[KubernetesActuator, list[Asked]]
) -> None:
    actuator, asked = cluster
    one = action(pool, "k1", actuator_state={"replicas": 4})
    for _ in range(3):
        actuator.start(one)
    assert server.replicas == 4
    assert sum(method == "PATCH" for method, *_ in asked) == 1


def test_two_starts_have_different_target_scales(
    pool: Pool, server: ApiServer, cluster: tuple[KubernetesActuator, list[Asked]]
) -> None:
    actuator, _ = cluster
    one, two = action(pool, "k1"), action(pool, "k2")
    keep(one, actuator.start(one).actuator_state)
    keep(two, actuator.start(two).actuator_state)
    assert (one.actuator_state, two.actuator_state) == ({"replicas": 4}, {"replicas": 5})
    actuator.start(two)
    actuator.start(one)
    assert server.replicas == 5


def test_stop_removes_the_last_pod_and_waits_for_its_turn(
    pool: Pool, server: ApiServer, cluster: tuple[KubernetesActuator, list[Asked]]
) -> None:
    actuator, _ = cluster
    middle, last = action(pool, "k1", "stop", "vllm-1"), action(pool, "k2", "stop", "vllm-2")
    waiting = actuator.stop(middle)
    assert (waiting.progress, server.replicas) == (ActionProgress.UNDER_WAY, 3)
    assert "vllm-2 must stop before vllm-1" in waiting.says
    assert actuator.stop(last).progress == ActionProgress.IN_EFFECT
    assert server.replicas == 2
    assert actuator.stop(last).progress == ActionProgress.IN_EFFECT
    assert actuator.stop(middle).progress == ActionProgress.IN_EFFECT
    assert server.replicas == 1


def test_conflicting_scale_change_is_retried(
    pool: Pool, server: ApiServer, cluster: tuple[KubernetesActuator, list[Asked]]
) -> None:
    actuator, _ = cluster
    server.moved_before_patch = True
    with pytest.raises(ActuatorError, match="409"):
        actuator.start(action(pool, "k1", actuator_state={"replicas": 4}))
    assert server.replicas == 3


@pytest.mark.parametrize(("status", "kind"), [(403, RejectedActionError), (500, ActuatorError), (503, ActuatorError)])
def test_api_server_status_decides_whether_a_call_is_retried(
    pool: Pool,
    server: ApiServer,
    cluster: tuple[KubernetesActuator, list[Asked]],
    status: int,
    kind: type[Exception],
) -> None:
    server.fails = status
    with pytest.raises(kind, match=str(status)):
        cluster[0].start(action(pool, "k1"))


def test_pods_and_roles_outside_the_settings_are_rejected(
    pool: Pool, cluster: tuple[KubernetesActuator, list[Asked]]
) -> None:
    actuator, _ = cluster
    with pytest.raises(RejectedActionError, match="no StatefulSet for decode"):
        actuator.start(action(pool, "k1", role="decode"))
    for name in ("other-3", "vllm-x", "vllm"):
        with pytest.raises(RejectedActionError, match="not a pod"):
            actuator.stop(action(pool, f"k-{name}", "stop", name))
    with pytest.raises(RejectedActionError, match="keeps the role"):
        actuator.change_role(action(pool, "k9", "change_role", "vllm-1"))


def test_call_to_an_unresponsive_cluster_is_retried(pool: Pool) -> None:
    configuration = client.Configuration(host="http://127.0.0.1:9")
    configuration.retries = False
    with client.ApiClient(configuration) as connection:
        actuator = KubernetesActuator(SETTINGS, client.AppsV1Api(connection))
        with pytest.raises(ActuatorError, match="did not answer"):
            actuator.start(action(pool, "k1"))
