"""The Helm chart renders for the examples, is valid by schemas, rejects wrong values, and packages all it needs."""

from __future__ import annotations

import itertools
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.deploy.packages.chart_tools import (
    CHART,
    EXAMPLES,
    RELEASE,
    VALUE_SETS,
    Object,
    documents,
    example,
    helm,
    notes,
    of_kind,
    pod,
    render,
    rendered,
)
from tests.deploy.packages.custom_resources import SPECS, schema_of
from tests.deploy.packages.package_tools import DEPLOY

VERSION = "1.37"
"""Version of the schemas; the API versions in use exist since 1.27, which the chart requires."""
ENGINES = ("engines-keda", "engines-hpa")


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return `first` with the values of `second`, as `helm --values A --values B`."""
    made = dict(first)
    for name, value in second.items():
        made[name] = merged(made.get(name, {}), value) if isinstance(value, dict) else value
    return made


def check(made: Object) -> None:
    """Raise if a schema rejects an object."""
    import kubernetes_validate

    schema = schema_of(made)
    if schema is None:
        kubernetes_validate.validate(made, VERSION, strict=True)
    else:
        Draft202012Validator(schema).validate(made)


@pytest.mark.parametrize("name", VALUE_SETS)
def test_schemas_accept_every_object(name: str) -> None:
    objects = rendered(name)
    for made in objects:
        check(made)
    names = [(made["kind"], made["metadata"]["namespace"], made["metadata"]["name"]) for made in objects]
    assert len(names) == len(set(names)) >= 14


@pytest.mark.parametrize("name", ENGINES)
def test_schemas_accept_the_examples_of_engine_autoscalers(name: str) -> None:
    helm()
    for made in documents((EXAMPLES / f"{name}.yaml").read_text()):
        check(made)


def test_every_custom_resource_with_a_schema_is_rendered() -> None:
    texts = [made for name in VALUE_SETS for made in rendered(name)]
    texts += [made for name in ENGINES for made in documents((EXAMPLES / f"{name}.yaml").read_text())]
    assert set(SPECS) <= {(made["apiVersion"], made["kind"]) for made in texts}
    assert {path.stem for path in EXAMPLES.iterdir()} == {*VALUE_SETS, *ENGINES}


def test_a_misspelled_field_of_a_custom_resource_is_rejected() -> None:
    (made,) = of_kind("production", "ServiceMonitor")
    (endpoint,) = made["spec"]["endpoints"]
    changed = {**made, "spec": {**made["spec"], "endpoints": [{**endpoint, "intervall": "15s"}]}}
    with pytest.raises(Exception, match="intervall"):
        check(changed)


def test_helm_finds_nothing_to_criticize() -> None:
    for name in VALUE_SETS:
        report = helm().lint(str(CHART), example(name), strict=True)
        serious = [message for message in report["messages"] if message["severity"] > 1]
        assert not report["errors"], report["errors"]
        assert not serious, serious


def test_the_schema_names_exactly_the_values_and_each_is_explained() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def compare(value: Any, part: dict[str, Any], path: str) -> None:
        if "$ref" in part:
            part = schema["$defs"][part["$ref"].rpartition("/")[2]]
        if isinstance(value, dict) and part.get("additionalProperties") is False and path != "/resources":
            assert set(value) <= set(part["properties"]), path
            if not path.endswith("/resources"):
                assert set(part["properties"]) - {"global"} == set(value), path
            for key, inner in value.items():
                compare(inner, part["properties"][key], f"{path}/{key}")

    compare(values, schema, "")
    lines = (CHART / "values.yaml").read_text().splitlines()
    for before, line in itertools.pairwise(lines):
        if ": " in line and not line.lstrip().startswith(("#", "HEADWAY_", "requests:", "limits:")):
            assert before.lstrip().startswith("#"), f"{line} has no comment"


WRONG = {
    "unknown": ({"gatway": {}}, "gatway"),
    "nested": ({"gateway": {"replica": 3}}, "replica"),
    "no gateways": ({"gateway": {"replicas": 0}}, "replicas"),
    "text for a number": ({"drainSeconds": "120"}, "drainSeconds"),
    "number for a setting": ({"settings": {"HEADWAY_PROCESSES": 2}}, "HEADWAY_PROCESSES"),
    "secret among settings": ({"settings": {"HEADWAY_FLEET_SECRET": "x"}}, "HEADWAY_FLEET_SECRET"),
    "setting of the chart": ({"settings": {"HEADWAY_DRAIN_S": "60"}}, "HEADWAY_DRAIN_S"),
    "digest": ({"image": {"digest": "sha256:1"}}, "digest"),
    "network": ({"engines": {"networks": ["pods"]}}, "networks"),
    "discovery": ({"engines": {"discovery": ["kubernetes://engines/app=a:8000"]}}, "discovery"),
    "service type": ({"web": {"service": {"type": "External"}}}, "type"),
    "ingress without a host": ({"ingress": {"enabled": True}}, "hosts"),
    "route without a host": ({"httpRoute": {"parentRefs": [{"name": "public"}]}}, "hosts"),
    "picker without a key": ({"picker": {"enabled": True}}, "apiKeySecret"),
    "picker without engines": ({"picker": {"enabled": True, "apiKeySecret": {"name": "a"}}}, "matchLabels"),
    "nine ports": ({"picker": {"inferencePool": {"targetPorts": list(range(1, 10))}}}, "targetPorts"),
    "no database": ({"postgresql": {"bundled": False}}, "DATABASE_URL"),
    "no bus": ({"valkey": {"bundled": False}}, "REDIS_URL"),
    "secrets twice": ({"secrets": {"existingSecret": "a", "values": {"SECRET_KEY": "b"}}}, "existingSecret"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_values_are_rejected_by_name(wrong: str) -> None:
    values, named = WRONG[wrong]
    errors = helm().HelmError
    with helm().Chart.load(CHART) as chart, pytest.raises(errors, match=named):
        chart.validate_schema(values)
        chart.render(values, name=RELEASE)


def test_secrets_are_generated_only_where_none_are_given() -> None:
    (generated,) = of_kind("minimal", "Secret")
    names = {"SECRET_KEY", "HEADWAY_FLEET_SECRET", "HEADWAY_SCRAPE_TOKEN", "POSTGRES_PASSWORD", "VALKEY_PASSWORD"}
    assert set(generated["data"]) == names
    # The volume of the database outlives the release, and so must its password.
    assert generated["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert len({*generated["data"].values()}) == len(names)
    assert not of_kind("production", "Secret")
    given = {"secrets": {"values": {"SECRET_KEY": "k" * 32, "HEADWAY_ENGINE_KEY_CHAT": "e"}}}
    (made,) = [item for item in render(given) if item["kind"] == "Secret"]
    assert made["data"]["SECRET_KEY"] == "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="
    assert set(made["data"]) == {*names, "HEADWAY_ENGINE_KEY_CHAT"}


def test_a_change_of_settings_restarts_the_pods_and_one_of_replicas_does_not() -> None:
    def annotations(values: dict[str, Any]) -> list[dict[str, str]]:
        made = [item for item in render(merged(example("minimal"), values)) if item["kind"] == "Deployment"]
        return [item["spec"]["template"]["metadata"]["annotations"] for item in made]

    before = annotations({})
    assert annotations({"gateway": {"replicas": 5}}) == before
    for change in ({"settings": {"HEADWAY_LOG_LEVEL": "DEBUG"}}, {"secrets": {"values": {"SECRET_KEY": "k" * 32}}}):
        assert not [one for one, other in zip(annotations(change), before, strict=True) if one == other]


def test_names_follow_the_release_and_stay_short_enough() -> None:
    for release, expected in (("prod", "prod-headway-gateway"), ("headway-eu", "headway-eu-gateway")):
        names = {made["metadata"]["name"] for made in render({}, release)}
        assert expected in names
    longest = render({"fullnameOverride": "n" * 63})
    assert max(len(made["metadata"]["name"]) for made in longest) <= 52


def test_optional_parts_are_off_by_default() -> None:
    kinds = {made["kind"] for made in render({})}
    assert kinds == {
        "ConfigMap",
        "Deployment",
        "PodDisruptionBudget",
        "Role",
        "RoleBinding",
        "Secret",
        "Service",
        "ServiceAccount",
        "StatefulSet",
    }
    assert not [made for made in rendered("production") if made["kind"] == "StatefulSet"]


def test_alerts_and_dashboard_are_those_of_deploy() -> None:
    (rule,) = of_kind("production", "PrometheusRule")
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "headway.rules.yml").read_text())
    assert rule["spec"] == alerts
    (dashboard,) = [item for item in of_kind("production", "ConfigMap") if "headway.json" in item["data"]]
    assert dashboard["data"]["headway.json"] == (DEPLOY / "grafana" / "headway.json").read_text()
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_packaged_chart_contains_the_linked_files(tmp_path: Path) -> None:
    archive = Path(helm().package(str(CHART), destination=str(tmp_path)))
    with tarfile.open(archive) as packed:
        files = {member.name: member for member in packed.getmembers()}
        assert all(member.isfile() for member in files.values())
        alerts = packed.extractfile("headway/files/alerts.yml")
        assert alerts is not None
        assert alerts.read() == (DEPLOY / "prometheus" / "headway.rules.yml").read_bytes()
    assert "headway/files/dashboard.json" in files
    assert "headway/values.schema.json" in files


def test_notes_name_the_console_and_the_first_login() -> None:
    for name in VALUE_SETS:
        text = notes(example(name))
        assert "first_run.json" in text
        assert ("https://headway.example.com/" in text) == (name != "minimal")
        assert ("port-forward" in text) == (name == "minimal")


def test_a_digest_replaces_the_tag() -> None:
    digest = f"sha256:{'a' * 64}"
    made = render({"image": {"repository": "r/headway", "digest": digest}})
    images = {
        item["spec"]["template"]["spec"]["containers"][0]["image"] for item in made if item["kind"] == "Deployment"
    }
    assert images == {f"r/headway@{digest}"}
    assert pod("minimal", "web")["spec"]["containers"][0]["image"].endswith("/headway:0.1.0")
