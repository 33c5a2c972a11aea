"""The chart's Services, routes, policies, and monitoring: consistent with the program and with each other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.live.live_fleet import wait_for
from bench.live.loopback_ports import free_ports
from gateway.base.peer_settings import LISTEN
from gateway.bus.bus_metrics import PLAN_GOOD_S, WANTED_ENGINES
from tests.deploy.packages.chart_tools import (
    BUNDLED,
    CHART,
    EXAMPLES,
    NAMESPACE,
    PUBLIC,
    VALUE_SETS,
    component,
    documents,
    example,
    of_kind,
    pod,
    pods_of,
    ports,
    render,
    the_container,
    workloads,
)
from tests.deploy.packages.package_tools import DEPLOY
from tests.patience import PATIENCE_S
from tests.program import end

sets = pytest.mark.parametrize("name", VALUE_SETS)


@sets
def test_selectors_match_the_pods(name: str) -> None:
    selectors = [item["spec"]["selector"]["matchLabels"] for item in workloads(name)]
    selectors += [item["spec"]["selector"] for item in of_kind(name, "Service")]
    selectors += [item["spec"]["selector"]["matchLabels"] for item in of_kind(name, "PodDisruptionBudget")]
    for policy in of_kind(name, "NetworkPolicy"):
        selectors.append(policy["spec"]["podSelector"]["matchLabels"])
        sources = [source for rule in policy["spec"]["ingress"] for source in rule.get("from", ())]
        selectors += [source["podSelector"]["matchLabels"] for source in sources if "podSelector" in source]
    for workload in workloads(name):
        spread = workload["spec"]["template"]["spec"].get("topologySpreadConstraints", [])
        selectors += [item["labelSelector"]["matchLabels"] for item in spread]
        assert bool(spread) == (component(workload) not in BUNDLED)
    assert len(selectors) >= 12
    for selector in selectors:
        assert len(pods_of(name, selector)) == 1, selector


def test_two_releases_in_one_namespace_do_not_select_each_others_pods() -> None:
    first = [item["spec"]["template"]["metadata"]["labels"] for item in render({}, "a") if item["kind"] == "Deployment"]
    for made in render({}, "b"):
        if made["kind"] == "Service":
            assert not [label for label in first if made["spec"]["selector"].items() <= label.items()]


@sets
def test_services_reach_named_ports_and_probes_reach_ports_and_paths_that_exist(name: str) -> None:
    for service in of_kind(name, "Service"):
        (template,) = pods_of(name, service["spec"]["selector"])
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in ports(template)
    for workload in workloads(name):
        template = workload["spec"]["template"]
        for container in template["spec"]["containers"]:
            probes = {kind: container[kind] for kind in container if kind.endswith("Probe")}
            # Jobs accept no connections.
            expected = set() if component(workload) == "jobs" else {"startupProbe", "livenessProbe", "readinessProbe"}
            assert set(probes) == expected
            for probe in probes.values():
                if "httpGet" in probe:
                    assert probe["httpGet"]["port"] in ports(template)
                if "grpc" in probe:
                    assert probe["grpc"]["port"] in ports(template).values()


def test_budgets_and_autoscalers_name_existing_workloads_with_several_pods() -> None:
    for name, budgets in (("minimal", set()), ("production", {"gateway", "web", "jobs"})):
        assert {component(item) for item in of_kind(name, "PodDisruptionBudget")} == budgets
    (scaler,) = of_kind("picker", "HorizontalPodAutoscaler")
    target = scaler["spec"]["scaleTargetRef"]
    (scaled,) = [item for item in workloads("picker") if item["metadata"]["name"] == target["name"]]
    assert scaled["kind"] == target["kind"]
    # A number in the Deployment would undo the autoscaler's with each upgrade.
    assert "replicas" not in scaled["spec"]
    assert scaled["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    (three,) = [item for item in of_kind("production", "Deployment") if component(item) == "gateway"]
    assert three["spec"]["replicas"] == 3


@sets
def test_only_gateways_and_webs_own_gateway_reach_each_other(name: str) -> None:
    for public in PUBLIC:
        template, container = pod(name, public), the_container(name, public)
        (listens,) = [item["value"] for item in container["env"] if item["name"] == LISTEN]
        assert listens == f"$(POD_IP):{ports(template)['peers']}"
    # The services are for clients.
    targets = {port["targetPort"] for item in of_kind(name, "Service") for port in item["spec"]["ports"]}
    assert "peers" not in targets


def test_connections_are_accepted_only_where_they_are_needed() -> None:
    values = {**example("minimal"), "networkPolicy": {"enabled": True}}
    policies = {component(made): made["spec"] for made in render(values) if made["kind"] == "NetworkPolicy"}
    assert {name: _sources(policy) for name, policy in policies.items()} == {
        "gateway": {"http": None, "peers": {"gateway", "web"}},
        "web": {"http": None, "peers": {"gateway", "web"}},
        "jobs": {},
        "postgresql": {"postgresql": {"web", "jobs"}},
        "valkey": {"valkey": {"gateway", "web", "jobs"}},
    }
    assert all(policy["policyTypes"] == ["Ingress"] for policy in policies.values())
    # With limited sources, the picker still reaches the gateways.
    limited = {component(made): made["spec"] for made in of_kind("picker", "NetworkPolicy")}
    assert _sources(limited["gateway"])["http"] == {"gateways", "picker"}
    assert _sources(limited["picker"]) == {"grpc": {"gateways"}}


def _sources(policy: dict[str, Any]) -> dict[str, set[str] | None]:
    """Return who may connect to each port; None: anyone."""

    def named(source: dict[str, Any]) -> str:
        (selector,) = source.values()
        chosen = selector["matchLabels"]
        return str(chosen.get("app.kubernetes.io/component") or chosen["kubernetes.io/metadata.name"])

    return {
        port["port"]: {named(source) for source in rule["from"]} if "from" in rule else None
        for rule in policy["ingress"]
        for port in rule["ports"]
    }


def test_routes_send_the_paths_of_gateways_to_gateways_and_all_others_to_web() -> None:
    paths = yaml.safe_load(_helper("headway.gatewayPaths"))
    # The same paths as in compose.
    nginx = (DEPLOY / "compose" / "nginx.conf").read_text()
    exact = re.search(r"location ~ \^/\(([^)]+)\)\$", nginx)
    below = re.search(r"location ~ \^/api/v1/\(([^)]+)\)\(/\|\$\)", nginx)
    assert exact and below
    alone = re.findall(r"location = (/\w+) \{ proxy_pass", nginx)
    assert set(paths["Exact"]) == {f"/{path}" for path in exact[1].split("|")} | set(alone)
    assert set(paths["Prefix"]) == {f"/api/v1/{path}" for path in below[1].split("|")} | {"/v1"}
    (ingress,) = of_kind("production", "Ingress")
    (rule,) = ingress["spec"]["rules"]
    backends = {item["path"]: item["backend"]["service"]["name"] for item in rule["http"]["paths"]}
    every = [*paths["Exact"], *paths["Prefix"]]
    assert backends == {**dict.fromkeys(every, "headway-gateway"), "/": "headway-web"}
    (route,) = [item for item in of_kind("picker", "HTTPRoute") if item["metadata"]["name"] == "headway"]
    *gateways, rest = route["spec"]["rules"]
    matched = [match["path"]["value"] for item in gateways for match in item["matches"]]
    assert sorted(matched) == sorted(every)
    assert {backend["name"] for item in gateways for backend in item["backendRefs"]} == {"headway-gateway"}
    assert rest == {"backendRefs": [{"name": "headway-web", "port": 80}]}


def _helper(name: str) -> str:
    text = (CHART / "templates" / "_helpers.tpl").read_text()
    return text.split(f'define "{name}" -}}}}')[1].split("{{- end }}")[0]


def test_routes_and_pickers_name_services_and_ports_that_exist() -> None:
    services = {
        item["metadata"]["name"]: {port["port"] for port in item["spec"]["ports"]}
        for item in of_kind("picker", "Service")
    }
    (pool,) = of_kind("picker", "InferencePool")
    picker = pool["spec"]["endpointPickerRef"]
    assert picker["port"]["number"] in services[picker["name"]]
    for route in of_kind("picker", "HTTPRoute"):
        for rule in route["spec"]["rules"]:
            for backend in rule["backendRefs"]:
                if backend.get("kind") == "InferencePool":
                    assert backend["name"] == pool["metadata"]["name"]
                else:
                    assert backend["port"] in services[backend["name"]]
    url = next(arg for arg in the_container("picker", "picker")["args"] if arg.startswith("--url="))
    assert url == f"--url=http://headway-gateway.{NAMESPACE}.svc"
    hosts = [arg.partition("=")[2] for arg in the_container("picker", "gateway")["args"] if "--allowed-host" in arg]
    # The picker, probes, Prometheus, and clients.
    assert {".svc", "$(POD_IP)", "headway.example.com", "localhost"} <= set(hosts)


def test_prometheus_scrapes_every_gateway_and_names_the_job_of_the_alerts() -> None:
    (monitor,) = of_kind("production", "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    selector = monitor["spec"]["selector"]
    matched = {
        component(item)
        for item in of_kind("production", "Service")
        if selector["matchLabels"].items() <= item["metadata"]["labels"].items()
        and item["metadata"]["labels"][selector["matchExpressions"][0]["key"]]
        in selector["matchExpressions"][0]["values"]
        and endpoint["port"] in {port["name"] for port in item["spec"]["ports"]}
    }
    assert matched == set(PUBLIC)
    assert endpoint["authorization"]["credentials"] == {"name": "headway", "key": "HEADWAY_SCRAPE_TOKEN"}
    (job,) = [item["replacement"] for item in endpoint["relabelings"] if item["targetLabel"] == "job"]
    assert f'up{{job="{job}"}}' in (DEPLOY / "prometheus" / "headway.rules.yml").read_text()


def test_autoscalers_of_engines_follow_the_exported_plan() -> None:
    (keda,) = documents((EXAMPLES / "engines-keda.yaml").read_text())
    (trigger,) = keda["spec"]["triggers"]
    assert trigger["metadata"]["query"] == f'max({WANTED_ENGINES}{{pool="chat"}})'
    # A missing value must not count as zero engines.
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert trigger["metadata"]["threshold"] == "1"
    assert keda["spec"]["pollingInterval"] < PLAN_GOOD_S
    (hpa,) = documents((EXAMPLES / "engines-hpa.yaml").read_text())
    (metric,) = hpa["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == WANTED_ENGINES
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}
    assert keda["spec"]["scaleTargetRef"] == hpa["spec"]["scaleTargetRef"]


@pytest.mark.processes
def test_a_gateway_started_as_in_its_pod_answers_probes_scrapes_and_clients(tmp_path: Path) -> None:
    (data,) = [item["data"] for item in of_kind("picker", "ConfigMap") if component(item) == "settings"]
    container = the_container("picker", "gateway")
    port, peers = free_ports(2)
    variables = {"POD_NAME": "headway-gateway-0", "POD_IP": "127.0.0.1", "VALKEY_PASSWORD": "v"}
    secrets = {"HEADWAY_FLEET_SECRET": "k3jV9xQ2" * 6, "HEADWAY_SCRAPE_TOKEN": "scraped"}

    def expanded(text: str) -> str:
        for name, value in variables.items():
            text = text.replace(f"$({name})", value)
        return text.replace("7946", str(peers))

    given = {item["name"]: expanded(item["value"]) for item in container["env"] if "value" in item}
    # No server is there: the gateway serves from its snapshot.
    given["REDIS_URL"] = given["REDIS_URL"].replace("headway-valkey:6379", "127.0.0.1:1")
    ours = {"--host=0.0.0.0": "--host=127.0.0.1", "--port=8000": f"--port={port}"}
    ours["--state-dir=/var/lib/headway"] = f"--state-dir={tmp_path}"
    command = [expanded(ours.get(argument, argument)) for argument in container["args"]]
    environment = {"PATH": os.environ["PATH"], **data, **given, **secrets}
    process = subprocess.Popen([sys.executable, *command[1:]], cwd=DEPLOY.parent, env=environment)
    url = f"http://127.0.0.1:{port}"

    def status(path: str, host: str) -> int:
        request = urllib.request.Request(f"{url}{path}", headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    try:
        wait_for(f"{url}/live")
        # Probes, the picker, clients inside and outside the cluster.
        for host in (f"127.0.0.1:{port}", f"headway-gateway.{NAMESPACE}.svc", "headway-gateway", "headway.example.com"):
            assert status(container["readinessProbe"]["httpGet"]["path"], host) == 503, "there is no engine yet"
        assert status("/live", "elsewhere.example.com") == 400
        scrape = urllib.request.Request(f"{url}/metrics", headers={"Authorization": "Bearer scraped"})
        with urllib.request.urlopen(scrape, timeout=PATIENCE_S) as answer:
            assert f"# HELP {WANTED_ENGINES} " in answer.read().decode()
    finally:
        end(process)
