"""Engine lists of a file, a DNS name, and a cluster, and the cases that count as an outage."""

from __future__ import annotations

import json
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes import client

from controlplane.fleet.discovery.dns_source import engines_of_name
from controlplane.fleet.discovery.file_source import engines_of_file
from controlplane.fleet.discovery.found_engine import DiscoveryOutageError, FoundEngine, Presence
from controlplane.fleet.discovery.kubernetes_source import engines_of_cluster
from controlplane.fleet.discovery.setting import DiscoverySource
from controlplane.fleet.engine_url import EngineUrlRules, UnresolvedHostError, check_engine_url
from tests.controlplane.automation.actuators.http_exchange import http_server

ANYWHERE = EngineUrlRules((ip_network("0.0.0.0/0"), ip_network("::/0")))


def of_text(tmp_path: Path, text: str) -> list[FoundEngine]:
    path = tmp_path / "engines.txt"
    path.write_text(text)
    return engines_of_file(DiscoverySource("chat", "file", str(path)))


def test_file_lists_engines_in_the_format_of_a_paste(tmp_path: Path) -> None:
    engines = of_text(tmp_path, "# chat\ne-1, http://10.0.0.1:8000\ne-2 http://10.0.0.2:8000 tcp://10.0.0.2:5557 1.5\n")
    assert engines == [
        FoundEngine("e-1", "http://10.0.0.1:8000"),
        FoundEngine("e-2", "http://10.0.0.2:8000", {"kv_events_endpoint": "tcp://10.0.0.2:5557", "speed": 1.5}),
    ]


def test_addresses_of_a_file_are_normalized_like_those_of_engines(tmp_path: Path) -> None:
    engines = of_text(tmp_path, "a, http://Engine.Internal./\nb, https://[FD00::1]/path/\n")
    assert [item.url for item in engines] == ["http://engine.internal:80", "https://[fd00::1]:443/path"]
    assert [check_engine_url(item.url, ANYWHERE, lambda *_: ["10.0.0.1"]).url for item in engines] == [
        item.url for item in engines
    ]


@pytest.mark.parametrize(
    "text", ["", "a, http://user@10.0.0.1", "e-1, http://10.0.0.1:8000\ne-2, htt", "e-1, other, http://10.0.0.1:8000"]
)
def test_incomplete_or_foreign_file_counts_as_an_outage(tmp_path: Path, text: str) -> None:
    with pytest.raises(DiscoveryOutageError):
        of_text(tmp_path, text)


def test_missing_file_counts_as_an_outage(tmp_path: Path) -> None:
    with pytest.raises(DiscoveryOutageError, match="No such file"):
        engines_of_file(DiscoverySource("chat", "file", str(tmp_path / "none")))


NAME = DiscoverySource("chat", "dns", "vllm.internal", port=8000)


def test_dns_name_lists_one_engine_per_address() -> None:
    engines = engines_of_name(NAME, lambda *_: ["10.0.0.2", "fd00::1", "10.0.0.2"])
    assert [(item.name, item.url) for item in engines] == [
        ("10-0-0-2-8000", "http://10.0.0.2:8000"),
        ("fd00-1-8000", "http://[fd00::1]:8000"),
    ]


def test_dns_name_without_addresses_counts_as_an_outage() -> None:
    def gone(*_: object) -> list[str]:
        raise UnresolvedHostError("vllm.internal has no address")

    for resolver in (gone, lambda *_: []):
        with pytest.raises(DiscoveryOutageError, match="has no address"):
            engines_of_name(NAME, resolver)


def pod(name: str, ip: str | None, *, ready: bool = True, leaving: bool = False, phase: str = "Running") -> Any:
    metadata = {"name": name} | ({"deletionTimestamp": "2026-11-01T08:00:00Z"} if leaving else {})
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": metadata, "status": {"podIP": ip, "phase": phase, "conditions": conditions}}


PODS = {
    "kind": "PodList",
    "apiVersion": "v1",
    "metadata": {"resourceVersion": "7"},
    "items": [
        pod("vllm-0", "10.1.0.1"),
        pod("vllm-1", "10.1.0.2", ready=False),
        pod("vllm-2", "10.1.0.3", leaving=True),
        pod("vllm-3", None),
        pod("vllm-4", "10.1.0.5", phase="Succeeded"),
    ],
}
PODS_PATH = "/api/v1/namespaces/llm/pods"
POOL_PATH = "/apis/inference.networking.k8s.io/v1/namespaces/llm/inferencepools/llama"
OLD_PATH = "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/llm/inferencepools/llama"


def listed(source: DiscoverySource, answers: dict[str, Any]) -> tuple[list[FoundEngine], dict[str, list[str]]]:
    """Return the engines that the source lists in a cluster with these responses, and the query for pods."""

    def answer(_method: str, path: str, _headers: dict[str, str], _body: bytes) -> tuple[int, bytes]:
        reply = answers.get(urlsplit(path).path)
        return (404, b"{}") if reply is None else (reply, b"{}") if isinstance(reply, int) else (200, dumped(reply))

    def dumped(value: Any) -> bytes:
        return json.dumps(value).encode()

    with http_server(answer) as (url, asked), client.ApiClient(client.Configuration(host=url)) as connection:
        connection.configuration.retries = False
        engines = engines_of_cluster(source, connection)
    return engines, parse_qs(urlsplit(asked[-1][1]).query)


SELECTED = DiscoverySource("chat", "kubernetes", "llm", "app=vllm", 8000)
GATEWAYS = DiscoverySource("chat", "inferencepool", "llm", "llama")


def test_selector_lists_running_pods_with_their_readiness() -> None:
    engines, query = listed(SELECTED, {PODS_PATH: PODS})
    assert [(item.name, item.url, item.presence) for item in engines] == [
        ("vllm-0", "http://10.1.0.1:8000", Presence.READY),
        ("vllm-1", "http://10.1.0.2:8000", Presence.WAITING),
        ("vllm-2", "http://10.1.0.3:8000", Presence.LEAVING),
    ]
    assert query["labelSelector"] == ["app=vllm"]


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        (POOL_PATH, {"selector": {"matchLabels": {"tier": "gpu", "app": "vllm"}}, "targetPorts": [{"number": 9000}]}),
        (OLD_PATH, {"selector": {"tier": "gpu", "app": "vllm"}, "targetPortNumber": 9000}),
    ],
)
def test_inference_pool_gives_selector_and_port_in_both_api_versions(path: str, spec: dict[str, Any]) -> None:
    engines, query = listed(GATEWAYS, {path: {"spec": spec}, PODS_PATH: PODS})
    assert engines[0].url == "http://10.1.0.1:9000"
    assert query["labelSelector"] == ["app=vllm,tier=gpu"]


def test_empty_cluster_lists_no_engine() -> None:
    assert listed(SELECTED, {PODS_PATH: {**PODS, "items": []}})[0] == []


@pytest.mark.parametrize(
    ("source", "answers", "words"),
    [
        (SELECTED, {PODS_PATH: 403}, "answered 403"),
        (SELECTED, {PODS_PATH: 500}, "answered 500"),
        (GATEWAYS, {}, "no InferencePool llama"),
        (GATEWAYS, {POOL_PATH: {"spec": {"selector": {}}}}, "no selector"),
    ],
)
def test_invalid_response_of_a_cluster_counts_as_an_outage(
    source: DiscoverySource, answers: dict[str, Any], words: str
) -> None:
    with pytest.raises(DiscoveryOutageError, match=words):
        listed(source, answers)


def test_unresponsive_cluster_counts_as_an_outage() -> None:
    with client.ApiClient(client.Configuration(host="http://127.0.0.1:1")) as connection:
        connection.configuration.retries = False
        with pytest.raises(DiscoveryOutageError, match="did not answer"):
            engines_of_cluster(SELECTED, connection)
