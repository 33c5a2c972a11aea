"""The Kubernetes manifests: valid by Kubernetes' schemas, and consistent with the program and each other."""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import Any

import pytest
import yaml

from gateway.base.peer_settings import LISTEN
from gateway.server.process.shutdown import DRAIN_S
from tests.deploy.packages.package_tools import DEPLOY, installed

FOLDER = DEPLOY / "kubernetes"
VERSION = "1.37"
"""Version of the schemas; the API versions in use exist since 1.25."""
ACCOUNT = 10001
EXAMPLE = (DEPLOY.parent / ".env.example").read_text()
SETTINGS = set(re.findall(r"^([A-Z_]+)=", EXAMPLE, re.MULTILINE))
OWN = {"HEADWAY_HOST", "POD_IP", "POD_NAME"}
"""Variables that only the manifests use."""


@cache
def objects() -> list[dict[str, Any]]:
    """Return every object of every file except the kustomization."""
    files = [path for path in sorted(FOLDER.glob("*.yaml")) if path.name != "kustomization.yaml"]
    return [made for file in files for made in yaml.safe_load_all(file.read_text())]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [object_ for object_ in objects() if object_["kind"] == kind]


def deployment(name: str) -> dict[str, Any]:
    return next(item for item in of_kind("Deployment") if item["metadata"]["name"] == f"headway-{name}")["spec"]


def pods() -> list[dict[str, Any]]:
    return [item["spec"]["template"] for item in of_kind("Deployment")]


def containers() -> list[dict[str, Any]]:
    return [item for pod in pods() for part in ("initContainers", "containers") for item in pod["spec"].get(part, ())]


def test_kubernetes_schemas_accept_every_object() -> None:
    sys.path.append(str(installed()))
    import kubernetes_validate

    assert len(objects()) >= 14
    for made in objects():
        kubernetes_validate.validate(made, VERSION, strict=True)


def test_the_kustomization_names_all_files_except_the_optional_one() -> None:
    named = set(yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"])
    assert named == {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml", "autoscaling.yaml"}


def test_selectors_match_the_pods() -> None:
    labels = [pod["metadata"]["labels"] for pod in pods()]
    selectors = [item["spec"]["selector"]["matchLabels"] for item in of_kind("Deployment")]
    selectors += [item["spec"]["selector"] for item in of_kind("Service")]
    selectors += [item["spec"]["selector"]["matchLabels"] for item in of_kind("PodDisruptionBudget")]
    assert len(selectors) == 6
    for selector in selectors:
        assert sum(selector.items() <= label.items() for label in labels) == 1
    matched = [
        expression["values"]
        for item in of_kind("NetworkPolicy")
        for expression in item["spec"]["podSelector"].get("matchExpressions", ())
    ]
    assert matched == [["headway-web", "headway-gateway"]] * 2


def test_two_gateways_are_replaced_one_by_one_and_drain() -> None:
    gateway = deployment("gateway")
    assert gateway["replicas"] == 2
    assert gateway["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    for name in ("gateway", "web"):
        assert deployment(name)["template"]["spec"]["terminationGracePeriodSeconds"] > DRAIN_S
    (container,) = gateway["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/live"


def test_only_gateways_and_webs_own_gateway_reach_each_other() -> None:
    for name in ("gateway", "web"):
        (container,) = deployment(name)["template"]["spec"]["containers"]
        (listens,) = [item["value"] for item in container["env"] if item["name"] == LISTEN]
        (port,) = [item["containerPort"] for item in container["ports"] if item["name"] == "peers"]
        assert listens == f"$(POD_IP):{port}"
    (policy,) = [item["spec"] for item in of_kind("NetworkPolicy") if item["metadata"]["name"] == "headway-peers"]
    (rule,) = policy["ingress"]
    assert rule == {"from": [{"podSelector": policy["podSelector"]}], "ports": [{"protocol": "TCP", "port": "peers"}]}
    # The services are for clients.
    assert {port["targetPort"] for item in of_kind("Service") for port in item["spec"]["ports"]} == {"http"}


def test_variables_are_settings_of_the_program_and_secrets_are_not() -> None:
    (settings,) = of_kind("ConfigMap")
    named = set(settings["data"]) | {item["name"] for container in containers() for item in container.get("env", ())}
    assert named <= SETTINGS | OWN
    assert int(settings["data"]["HEADWAY_DRAIN_S"]) == DRAIN_S
    assert not [setting for setting in settings["data"] if re.search("SECRET|TOKEN|URL|KEY", setting)]
    assert not of_kind("Secret")


def test_nothing_runs_as_root_or_can_become_root() -> None:
    for pod in pods():
        security = pod["spec"]["securityContext"]
        assert (security["runAsNonRoot"], security["runAsUser"]) == (True, ACCOUNT)
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert f"ACCOUNT={ACCOUNT}" in (DEPLOY / "container" / "build.sh").read_text()


@pytest.mark.parametrize("name", ["gateway", "web"])
def test_only_workers_access_kubernetes_and_with_minimal_permissions(name: str) -> None:
    assert deployment(name)["template"]["spec"]["automountServiceAccountToken"] is False
    worker = deployment("worker")["template"]["spec"]
    assert worker["serviceAccountName"] == "headway-worker"
    rights = {
        (kind, verb)
        for role in of_kind("Role")
        for rule in role["rules"]
        for kind in rule["resources"]
        for verb in rule["verbs"]
    }
    assert rights == {
        ("pods", "list"),
        ("inferencepools", "get"),
        ("statefulsets/scale", "get"),
        ("statefulsets/scale", "patch"),
    }
