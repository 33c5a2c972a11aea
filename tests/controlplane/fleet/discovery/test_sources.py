"""Engine lists of a file, a DNS name, and a cluster, and the cases that count as an outage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from controlplane.fleet.discovery import kubernetes_source
from controlplane.fleet.discovery.dns_source import engines_of_name
from controlplane.fleet.discovery.file_source import engines_of_file
from controlplane.fleet.discovery.found_engine import DiscoveryOutageError, FoundEngine, Presence, plain_name
from controlplane.fleet.discovery.kubernetes_source import GROUPS, ClusterView, engines_of_cluster
from controlplane.fleet.discovery.setting import DiscoverySource
from controlplane.fleet.engine_url import EngineUrlRules, UnresolvedHostError, check_engine_url
from controlplane.platform import kubernetes_watch
from controlplane.platform.kubernetes_client import NoClusterError
from tests.controlplane.fleet.discovery.cluster import PODS, Cluster, cluster
from tests.patience import wait_until

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_watch, "PAUSE_S", 0.005)
    monkeypatch.setattr(kubernetes_watch, "LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr(kubernetes_watch, "ABSENT_S", 0.02)
    monkeypatch.setattr(kubernetes_source, "WAKE_S", 0.2)


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


SELECTED = DiscoverySource("chat", "kubernetes", "llm", "app=vllm", 8000)
GATEWAYS = DiscoverySource("chat", "inferencepool", "llm", "llama")
POOL, OLD_POOL = (f"/apis/{group}/namespaces/llm/inferencepools" for group in GROUPS)
MATCHED = {"selector": {"matchLabels": {"app": "vllm"}}}


@contextmanager
def view(
    source: DiscoverySource, on_change: Callable[[], None] = lambda: None
) -> Iterator[tuple[Cluster, ClusterView]]:
    """Run an API server and a view of it."""
    with cluster() as (server, connection):
        made = ClusterView(source, connection, on_change)
        try:
            yield server, made
        finally:
            made.close()


def lists(view: ClusterView, *wanted: tuple[str, str, Presence]) -> None:
    """Wait until the view lists these engines."""
    wait_until(lambda: listed(view) == list(wanted), str(listed(view)))


def listed(view: ClusterView) -> Any:
    try:
        return [(item.name, item.url, item.presence) for item in view.engines()]
    except DiscoveryOutageError as error:
        return str(error)


def test_selector_lists_running_pods_with_their_readiness() -> None:
    with view(SELECTED) as (server, pods):
        server.pod("vllm-0", "10.1.0.1")
        server.pod("vllm-1", "10.1.0.2", ready=False)
        server.pod("vllm-2", "10.1.0.3", deletionTimestamp="2026-11-01T08:00:00Z")
        server.pod("vllm-3", None)
        server.pod("vllm-4", "10.1.0.5", phase="Succeeded")
        server.pod("web-0", "10.1.0.6", app="web")
        lists(
            pods,
            ("vllm-0", "http://10.1.0.1:8000", Presence.READY),
            ("vllm-1", "http://10.1.0.2:8000", Presence.WAITING),
            ("vllm-2", "http://10.1.0.3:8000", Presence.LEAVING),
        )
        server.pod("vllm-0", "10.1.0.1", ready=False)
        server.pod("vllm-1", "10.1.0.2", app="web")
        server.delete(PODS, "vllm-2")
        lists(pods, ("vllm-0", "http://10.1.0.1:8000", Presence.WAITING))


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        (POOL, {"selector": {"matchLabels": {"tier": "gpu", "app": "vllm"}}, "targetPorts": [{"number": 9000}]}),
        (OLD_POOL, {"selector": {"tier": "gpu", "app": "vllm"}, "targetPortNumber": 9000}),
    ],
)
def test_inference_pool_gives_selector_and_port_in_both_api_versions(path: str, spec: dict[str, Any]) -> None:
    with view(GATEWAYS) as (server, pods):
        server.put(PODS, "vllm-0", {"tier": "gpu", "app": "vllm"}, status={"podIP": "10.1.0.1"})
        server.pod("vllm-1", "10.1.0.2")
        server.serve(POOL)
        server.put(path, "other", spec={"selector": {"matchLabels": {"app": "vllm"}}})
        server.put(path, "llama", spec=spec)
        lists(pods, ("vllm-0", "http://10.1.0.1:9000", Presence.WAITING))


def test_each_target_port_is_an_engine_named_by_its_rank() -> None:
    with view(GATEWAYS) as (server, pods):
        server.pod("vllm-0", "10.1.0.1")
        server.pod("vllm-1", "fd00::1", annotations={"llm-d.ai/active-ports": "8001"})
        server.put(POOL, "llama", spec={**MATCHED, "targetPorts": [{"number": 8000}, {"number": 8001}]})
        lists(
            pods,
            ("vllm-0-rank-0", "http://10.1.0.1:8000", Presence.READY),
            ("vllm-0-rank-1", "http://10.1.0.1:8001", Presence.READY),
            ("vllm-1-rank-1", "http://[fd00::1]:8001", Presence.READY),
        )


def test_changed_pool_has_the_pods_of_its_new_selector_and_ports() -> None:
    with view(GATEWAYS) as (server, pods):
        server.pod("vllm-0", "10.1.0.1")
        server.pod("new-0", "10.1.0.2", app="new")
        server.put(POOL, "llama", spec={**MATCHED, "targetPorts": [{"number": 8000}]})
        lists(pods, ("vllm-0", "http://10.1.0.1:8000", Presence.READY))
        spec = {"selector": {"matchLabels": {"app": "new"}}, "targetPorts": [{"number": 9000}]}
        server.put(POOL, "llama", spec=spec)
        lists(pods, ("new-0", "http://10.1.0.2:9000", Presence.READY))
        server.delete(POOL, "llama")
        wait_until(lambda: "no InferencePool llama" in listed(pods))


def test_empty_cluster_lists_no_engine() -> None:
    with view(SELECTED) as (_, pods):
        assert pods.engines() == []


@pytest.mark.parametrize(
    ("spec", "words"),
    [(None, "no InferencePool llama"), ({"selector": {}}, "no selector"), (MATCHED, "no target port")],
)
def test_missing_or_unusable_pool_counts_as_an_outage(spec: dict[str, Any] | None, words: str) -> None:
    with view(GATEWAYS) as (server, pods):
        if spec is not None:
            server.put(POOL, "llama", spec=spec)
        wait_until(lambda: words in listed(pods))


def test_rejected_and_lost_connections_count_as_outages() -> None:
    with view(SELECTED) as (server, pods):
        server.pod("vllm-0", "10.1.0.1")
        lists(pods, ("vllm-0", "http://10.1.0.1:8000", Presence.READY))
        server.hang_up(failing=403)
        wait_until(lambda: "answered 403" in listed(pods))
        server.failing = 0
        lists(pods, ("vllm-0", "http://10.1.0.1:8000", Presence.READY))


def test_changes_of_pods_wake_the_job_and_many_at_once_only_twice() -> None:
    woken: list[None] = []
    with view(SELECTED, lambda: woken.append(None)) as (server, pods):
        assert pods.engines() == []
        for number in range(20):
            server.pod(f"vllm-{number}", f"10.1.0.{number}")
        wait_until(lambda: len(pods.engines()) == 20)
        wait_until(lambda: len(woken) == 2)


def test_cluster_without_credentials_counts_as_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise NoClusterError("No kubeconfig.")

    monkeypatch.setattr(kubernetes_source, "_connection", missing)
    with pytest.raises(DiscoveryOutageError, match="No kubeconfig"):
        engines_of_cluster(DiscoverySource("chat", "kubernetes", "llm", "app=nowhere", 8000))


def test_names_of_pods_that_differ_at_their_end_stay_different() -> None:
    long = "vllm-" + "x" * 80
    names = {plain_name(f"{long}-{number}") for number in range(3)}
    assert len(names) == 3
    assert max(map(len, names)) == 64
