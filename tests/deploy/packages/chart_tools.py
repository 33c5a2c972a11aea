"""Renders the Helm chart by Helm's own library, without a cluster."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml

from tests.deploy.packages.package_tools import DEPLOY, installed

CHART = DEPLOY / "helm" / "headway"
EXAMPLES = DEPLOY / "helm" / "examples"
RELEASE, NAMESPACE = "headway", "headway"
VALUE_SETS = ("minimal", "production", "picker")
BUNDLED = {"postgresql", "valkey"}
PUBLIC = ("gateway", "web")
"""Components that serve clients and people."""
Object = dict[str, Any]


def helm() -> Any:
    """Return Helm's library; skip the test without it."""
    sys.path.append(str(installed()))
    import helm_python

    return helm_python


def example(name: str) -> dict[str, Any]:
    """Return the values of an example."""
    values: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    return values


def render(values: Mapping[str, Any], release: str = RELEASE) -> list[Object]:
    """Return the objects that the chart makes of these values, or raise what Helm raises."""
    with helm().Chart.load(CHART) as chart:
        texts = chart.render(dict(values), name=release, namespace=NAMESPACE)
    return [made for name, text in sorted(texts.items()) if name.endswith(".yaml") for made in documents(text)]


def documents(text: str) -> Iterator[Object]:
    """Yield the objects of a YAML text. A key that is written twice fails, because kubectl takes the last one."""
    yield from (made for made in yaml.load_all(text, _OnceLoader) if made)


def notes(values: Mapping[str, Any]) -> str:
    """Return what Helm prints after the installation."""
    with helm().Chart.load(CHART) as chart:
        texts: dict[str, str] = chart.render(dict(values), name=RELEASE, namespace=NAMESPACE)
    return texts.get("headway/templates/NOTES.txt", "")


@cache
def rendered(name: str) -> list[Object]:
    """Return the objects of an example."""
    return render(example(name))


def of_kind(name: str, kind: str) -> list[Object]:
    """Return the objects of one kind of an example."""
    return [made for made in rendered(name) if made["kind"] == kind]


def workloads(name: str) -> list[Object]:
    """Return what runs pods."""
    return of_kind(name, "Deployment") + of_kind(name, "StatefulSet")


def pod(name: str, component: str) -> Object:
    """Return the pod of a component of an example."""
    (made,) = [item for item in workloads(name) if item["metadata"]["name"] == f"{RELEASE}-{component}"]
    template: Object = made["spec"]["template"]
    return template


def containers(template: Object) -> list[Object]:
    """Return all containers of a pod."""
    return [item for part in ("initContainers", "containers") for item in template["spec"].get(part, ())]


def the_container(name: str, component: str) -> Object:
    """Return the only container of a component that keeps running."""
    (container,) = pod(name, component)["spec"]["containers"]
    made: Object = container
    return made


def component(made: Object) -> str:
    """Return the component that an object belongs to."""
    return str(made["metadata"]["labels"]["app.kubernetes.io/component"])


def ports(template: Object) -> dict[str, int]:
    """Return the ports of a pod by name."""
    return {port["name"]: port["containerPort"] for item in containers(template) for port in item.get("ports", ())}


def pods_of(name: str, selector: dict[str, str]) -> list[Object]:
    """Return the pods of an example that a selector matches."""
    made = [item["spec"]["template"] for item in workloads(name)]
    return [item for item in made if selector.items() <= item["metadata"]["labels"].items()]


def settings() -> set[str]:
    """Return the names of all settings of the program."""
    return set(re.findall(r"^([A-Z_]+)=", (DEPLOY.parent / ".env.example").read_text(), re.MULTILINE))


class _OnceLoader(yaml.SafeLoader):
    """Rejects a key that a mapping has twice."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        raise ValueError(f"{sorted(twice)} twice, {node.start_mark}")
    return loader.construct_mapping(node, deep=True)


_OnceLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
