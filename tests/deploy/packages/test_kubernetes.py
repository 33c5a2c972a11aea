"""The chart's pods and permissions: consistent with the program and with each other."""

from __future__ import annotations

import argparse
import base64
import importlib.util
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import redis

from bench.live.loopback_ports import free_ports
from controlplane.fleet.discovery.kubernetes_source import GROUPS as POOL_GROUPS
from controlplane.fleet.discovery.setting import parse_discovery
from controlplane.project.processes.bus_server import server_program
from gateway.__main__ import _parser
from gateway.server.process.shutdown import DRAIN_S, LAST_STEPS_S
from tests.deploy.packages.chart_tools import (
    BUNDLED,
    NAMESPACE,
    PUBLIC,
    RELEASE,
    VALUE_SETS,
    component,
    containers,
    example,
    of_kind,
    render,
    rendered,
    settings,
    the_container,
    workloads,
)
from tests.deploy.packages.package_tools import DEPLOY
from tests.patience import wait_until
from tests.program import end

ACCOUNT = 10001
OWN = {"POD_IP", "POD_NAME", "POSTGRES_PASSWORD", "VALKEY_PASSWORD"}
"""Variables that only the chart uses: to make settings, or in the bundled servers."""
sets = pytest.mark.parametrize("name", VALUE_SETS)


def test_probes_are_the_ones_that_the_program_answers() -> None:
    paths = (DEPLOY.parent / "gateway" / "app.py").read_text()
    for component_name, ready in (("gateway", "/ready"), ("web", "/login")):
        container = the_container("minimal", component_name)
        assert container["livenessProbe"]["httpGet"]["path"] == container["startupProbe"]["httpGet"]["path"] == "/live"
        assert container["readinessProbe"]["httpGet"]["path"] == ready
    assert '"/live"' in paths and '"/ready"' in paths and '"/metrics"' in paths
    picker = the_container("picker", "picker")
    services = {picker[probe]["grpc"]["service"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert services == {"liveness", "readiness"}
    (probed,) = {picker[probe]["grpc"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert f"--health-listen=0.0.0.0:{probed}" in picker["args"]
    source = (DEPLOY / "envoy" / "picker.py").read_text()
    assert all(f'"{service}"' in source for service in services)


def test_gateways_are_replaced_one_by_one_and_drain() -> None:
    for name in PUBLIC:
        (made,) = [item for item in of_kind("production", "Deployment") if component(item) == name]
        assert made["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
        grace_s = made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        command = the_container("production", name)["lifecycle"]["preStop"]["exec"]["command"]
        assert command[0] == "sleep"
        assert grace_s > int(command[1]) + DRAIN_S + LAST_STEPS_S
    (data,) = [item["data"] for item in of_kind("minimal", "ConfigMap")]
    assert int(data["HEADWAY_DRAIN_S"]) == DRAIN_S


def test_a_longer_drain_gives_pods_more_time() -> None:
    made = {
        component(item): item
        for item in render({"drainSeconds": 900, "preStopSeconds": 20})
        if item["kind"] == "Deployment"
    }
    assert made["gateway"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 930
    (data,) = [item["data"] for item in render({"drainSeconds": 900}) if item["kind"] == "ConfigMap"]
    assert data["HEADWAY_DRAIN_S"] == "900"


@sets
def test_variables_are_settings_of_the_program_and_secrets_come_from_secrets(name: str) -> None:
    (data,) = [item["data"] for item in of_kind(name, "ConfigMap") if component(item) == "settings"]
    assert set(data) <= settings()
    assert not [setting for setting in data if re.search("SECRET|TOKEN|URL|KEY|PASSWORD", setting)]
    assert all(isinstance(value, str) for value in data.values())
    for workload in workloads(name):
        for container in containers(workload["spec"]["template"]):
            variables = {item["name"]: item for item in container.get("env", ())}
            assert len(variables) == len(container.get("env", ()))
            if component(workload) not in BUNDLED:
                assert set(variables) <= settings() | OWN
            for variable, item in variables.items():
                if re.search("SECRET|TOKEN|KEY|PASSWORD", variable):
                    assert "secretKeyRef" in item.get("valueFrom", {}), variable
            assert not [arg for arg in container.get("args", ()) if re.search(r"SECRET|TOKEN|://:", arg)]


def test_urls_of_bundled_servers_use_their_secrets_services_and_ports() -> None:
    for setting, server, password, scheme, user in (
        ("DATABASE_URL", "postgresql", "POSTGRES_PASSWORD", "postgres", "headway"),
        ("REDIS_URL", "valkey", "VALKEY_PASSWORD", "redis", ""),
    ):
        (service,) = [item for item in of_kind("minimal", "Service") if component(item) == server]
        (port,) = service["spec"]["ports"]
        env = the_container("minimal", "web")["env"]
        names = [item["name"] for item in env]
        # Kubernetes replaces only variables that come before.
        assert names.index(password) < names.index(setting)
        host = f"{service['metadata']['name']}:{port['port']}"
        assert env[names.index(setting)]["value"].startswith(f"{scheme}://{user}:$({password})@{host}/")


def test_urls_of_external_servers_come_from_the_named_secrets() -> None:
    env = {item["name"]: item for item in the_container("production", "jobs")["env"]}
    assert env["DATABASE_URL"]["valueFrom"]["secretKeyRef"] == {"name": "headway-db-app", "key": "uri"}
    assert env["REDIS_URL"]["valueFrom"]["secretKeyRef"] == {"name": "headway", "key": "REDIS_URL"}
    assert not {"POSTGRES_PASSWORD", "VALKEY_PASSWORD"} & set(env)
    gateway = {item["name"] for item in the_container("production", "gateway")["env"]}
    assert not {"DATABASE_URL", "SECRET_KEY"} & gateway


@sets
def test_commands_and_their_arguments_exist(name: str) -> None:
    for workload in workloads(name):
        for container in containers(workload["spec"]["template"]):
            arguments = container.get("args", [])
            if component(workload) in BUNDLED:
                continue
            assert arguments[0] == "python"
            if arguments[1] == "-m":
                assert importlib.util.find_spec(arguments[2])
                known = _options(arguments[2])
                used = {argument.partition("=")[0] for argument in arguments[3:]}
            else:
                assert (DEPLOY.parent / arguments[1]).exists()
                known, used = {"--host", "--port", "--check"}, {item.partition("=")[0] for item in arguments[3:]}
                assert arguments[2] in {"up", "worker", "migrate"}
            assert used <= known, used - known


def _options(module: str) -> set[str]:
    if module == "gateway":
        parser: argparse.ArgumentParser = _parser()
        return {option for action in parser._actions for option in action.option_strings}
    source = (DEPLOY / "envoy" / "__main__.py").read_text()
    assert module == "deploy.envoy"
    return set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', source))


@sets
def test_nothing_runs_as_root_or_can_become_root(name: str) -> None:
    for workload in workloads(name):
        template = workload["spec"]["template"]
        security = template["spec"]["securityContext"]
        account = 999 if component(workload) in BUNDLED else ACCOUNT
        assert (security["runAsNonRoot"], security["runAsUser"]) == (True, account)
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        # Variables of Services such as HEADWAY_WEB_PORT are not settings.
        assert template["spec"]["enableServiceLinks"] is False
        volumes = {volume["name"] for volume in template["spec"].get("volumes", ())}
        volumes |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
        for container in containers(template):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
            assert container["resources"]["requests"] and container["resources"]["limits"]
    assert f"ACCOUNT={ACCOUNT}" in (DEPLOY / "container" / "build.sh").read_text()


@sets
def test_only_jobs_and_pickers_access_kubernetes_and_with_minimal_permissions(name: str) -> None:
    accounts = {item["metadata"]["name"]: item for item in of_kind(name, "ServiceAccount")}
    for workload in workloads(name):
        spec = workload["spec"]["template"]["spec"]
        assert spec["automountServiceAccountToken"] is (component(workload) in {"jobs", "picker"})
        assert spec["serviceAccountName"] in accounts
    picker = {"inferenceobjectives"} if name == "picker" else set()
    assert _rights(name, "picker") == {(kind, verb) for kind in picker for verb in ("list", "watch")}
    rights = _rights(name, "jobs")
    scaling = {("statefulsets/scale", "get"), ("statefulsets/scale", "patch")} if name == "production" else set()
    assert rights == {(kind, verb) for kind in ("pods", "inferencepools") for verb in ("list", "watch")} | scaling
    for binding in of_kind(name, "RoleBinding"):
        subjects = [(item["name"], item["namespace"]) for item in binding["subjects"]]
        assert subjects == [(f"{RELEASE}-{component(binding)}", NAMESPACE)]
        roles = {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in of_kind(name, "Role")}
        assert (binding["metadata"]["namespace"], binding["roleRef"]["name"]) in roles
    # Roles are where discovery reads.
    read = {source.location for source in parse_discovery(" ".join(example(name)["engines"]["discovery"]))}
    assert {role["metadata"]["namespace"] for role in of_kind(name, "Role") if component(role) == "jobs"} == read


def _rights(name: str, holder: str) -> set[tuple[str, str]]:
    return {
        (kind, verb)
        for role in of_kind(name, "Role")
        if component(role) == holder
        for rule in role["rules"]
        for kind in rule["resources"]
        for verb in rule["verbs"]
    }


def test_jobs_and_pickers_may_read_the_groups_that_they_watch() -> None:
    groups = {
        component(role): {
            (group, kind) for rule in role["rules"] for group in rule["apiGroups"] for kind in rule["resources"]
        }
        for role in of_kind("picker", "Role")
    }
    assert {(group.partition("/")[0], "inferencepools") for group in POOL_GROUPS} <= groups["jobs"]
    source = (DEPLOY / "envoy" / "objectives.py").read_text()
    named = set(re.findall(r'"([a-z.0-9-]+)/v1alpha2"', source))
    assert {(group, "inferenceobjectives") for group in named} == groups["picker"]


def test_pickers_certificate_and_its_absence_reach_the_picker() -> None:
    def made(**tls: object) -> tuple[list[str], dict[str, Any], list[Any]]:
        values = example("picker")
        values["picker"] = {**values["picker"], "tls": tls}
        objects = {(item["kind"], item["metadata"]["name"]): item for item in render(values)}
        spec = objects["Deployment", "headway-picker"]["spec"]["template"]["spec"]
        (port,) = objects["Service", "headway-picker"]["spec"]["ports"]
        secrets = [volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume]
        return (
            [arg for arg in spec["containers"][0]["args"] if arg in {"--plaintext", "--cert-dir=/tls"}],
            port,
            secrets,
        )

    own, port, secrets = made(secretName="picker-tls")
    assert (own, secrets, "appProtocol" in port) == (["--cert-dir=/tls"], ["picker-tls"], False)
    assert made()[0] == made()[2] == []
    plain, port, secrets = made(enabled=False, secretName="picker-tls")
    assert (plain, secrets, port["appProtocol"]) == (["--plaintext"], [], "kubernetes.io/h2c")


def test_the_bundled_valkey_starts_by_its_script_and_requires_its_password(tmp_path: Path) -> None:
    (secret,) = of_kind("minimal", "Secret")
    password = base64.b64decode(secret["data"]["VALKEY_PASSWORD"]).decode()
    container = the_container("minimal", "valkey")
    (port,) = free_ports(1)
    script = container["args"][0].replace("--port 6379", f"--port {port} --bind 127.0.0.1")
    configuration = tmp_path / "valkey.conf"
    environment = {
        "PATH": f"{Path(server_program()).parent}:{os.environ['PATH']}",
        "CONFIGURATION": str(configuration),
        "VALKEY_PASSWORD": password,
    }
    process = subprocess.Popen(
        [*container["command"], script], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL
    )
    try:
        with redis.Redis(port=port, password=password) as client:
            wait_until(lambda: answers(client))
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        assert configuration.stat().st_mode & 0o077 == 0
    finally:
        end(process)


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@sets
def test_labels_of_objects_say_what_they_belong_to(name: str) -> None:
    for made in rendered(name):
        given = made["metadata"]["labels"]
        assert given["app.kubernetes.io/part-of"] == "headway"
        assert given["app.kubernetes.io/instance"] == RELEASE
