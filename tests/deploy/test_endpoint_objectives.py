"""InferenceObjectives of both API groups become priorities, and follow the cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.deploy.real_proxy import require_grpc

require_grpc()

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from controlplane.platform import kubernetes_watch
from deploy.envoy import objectives as objectives_module
from deploy.envoy.certificate import PickerSettingError
from deploy.envoy.objectives import GROUPS, InferenceObjectives
from deploy.envoy.picker import served
from tests.controlplane.fleet.discovery.cluster import Cluster, cluster
from tests.deploy.behind import CHAT
from tests.deploy.ext_proc_stream import ask, checked, picker, scripted_headway, settings, streamed
from tests.patience import until, wait_until

NEW, OLD = (f"/apis/{group}/namespaces/llm/inferenceobjectives" for group in GROUPS)
HEADER, OLD_HEADER = "x-llm-d-inference-objective", "x-gateway-inference-objective"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_watch, "PAUSE_S", 0.005)
    monkeypatch.setattr(kubernetes_watch, "LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr(kubernetes_watch, "ABSENT_S", 0.02)


def put(server: Cluster, path: str, name: str, priority: int | None, pool: str = "chat") -> None:
    spec: dict[str, Any] = {"poolRef": {"name": pool}}
    server.put(path, name, spec=spec if priority is None else {**spec, "priority": priority})


@contextmanager
def objectives() -> Iterator[tuple[Cluster, InferenceObjectives]]:
    with cluster() as (server, connection):
        made = InferenceObjectives(connection, "llm", "chat")
        try:
            yield server, made
        finally:
            made.close()


def test_higher_priorities_of_kubernetes_are_lower_ones_here() -> None:
    with objectives() as (server, made):
        for name, priority in (("urgent", 10), ("batch", -5), ("unset", None), ("least", -(2**31))):
            put(server, NEW, name, priority)
        wait_until(lambda: made.priority("least") is not None)
        # The least urgent one has no counterpart, so it gets the nearest.
        assert [made.priority(name) for name in ("urgent", "batch", "unset", "least")] == [-10, 5, 0, 2**31 - 1]
        assert made.priority("unknown") is None


def test_objectives_of_both_groups_count_and_those_of_other_pools_do_not() -> None:
    with objectives() as (server, made):
        put(server, OLD, "old", 3)
        put(server, OLD, "both", 3)
        put(server, NEW, "both", 7)
        put(server, NEW, "foreign", 9, pool="other")
        wait_until(lambda: (made.priority("old"), made.priority("both")) == (-3, -7))
        assert made.priority("foreign") is None
        server.delete(NEW, "both")
        wait_until(lambda: made.priority("both") == -3)
        put(server, OLD, "both", 3, pool="other")
        wait_until(lambda: made.priority("both") is None)


def test_last_known_objectives_count_during_an_outage_which_is_stated() -> None:
    with objectives() as (server, made):
        put(server, NEW, "urgent", 10)
        wait_until(lambda: made.priority("urgent") == -10)
        assert made.problem() == ""
        server.hang_up(failing=403)
        wait_until(lambda: "answered 403" in made.problem())
        assert made.priority("urgent") == -10


async def test_objective_named_by_the_client_sets_the_priority_of_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster() as (server, connection):
        monkeypatch.setattr(objectives_module, "api_client", lambda: connection)
        put(server, NEW, "urgent", 10)
        async with (
            scripted_headway() as headway,
            picker(settings(headway.url, objectives=("llm", "chat"))) as opened,
        ):
            await until(lambda: bool(server.requests("watch", NEW)))
            for header in (HEADER, OLD_HEADER):
                await ask(opened, {**CHAT, "priority": -99}, sent={header: "urgent"})
            await ask(opened, {**CHAT, "priority": 3}, sent={HEADER: "unknown"})
            await ask(opened)
            # The engine gets a priority only if the client sends one.
            headway.fields = {"priority": -10}
            for sent, received in ((CHAT, None), ({**CHAT, "priority": 3}, -10)):
                stream, _ = await ask(opened, sent, sent={HEADER: "urgent"})
                assert json.loads(streamed(await stream.read()).body).get("priority") == received
        asked = [body.get("priority") for _, body in headway.asked]
        assert asked == [-10, -10, 3, None, -10, -10]
        assert headway.asked[0][0][HEADER] == "urgent"


async def test_picker_is_ready_once_it_knows_its_objectives_or_knows_why_it_does_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster() as (server, connection):
        monkeypatch.setattr(objectives_module, "api_client", lambda: connection)
        server.failing = 403
        async with (
            scripted_headway() as headway,
            served(settings(headway.url, objectives=("llm", "chat"))) as (made, port),
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            checks = health_pb2_grpc.HealthStub(channel)
            while await checked(checks, "readiness") != health_pb2.HealthCheckResponse.SERVING:
                await asyncio.sleep(0.01)
            assert "headway_picker_objectives_known 0\n" in made.metrics()
            assert "InferenceObjectives are not known: Kubernetes answered 403" in caplog.text
            server.failing = 0
            await until(lambda: "headway_picker_objectives_known 1\n" in made.metrics())


async def test_picker_without_a_cluster_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(PickerSettingError, match="No kubeconfig"):
        async with served(settings("http://127.0.0.1:1", objectives=("llm", "chat"))):
            pass
