"""The OpenAPI document is valid and complete, and matches the implementation."""

from __future__ import annotations

from typing import Any

import pytest
from drf_spectacular.drainage import GENERATOR_STATS
from jsonschema import Draft202012Validator

from controlplane.platform.api.openapi import openapi_document
from controlplane.platform.api.problem import ApiRenderer
from controlplane.project.api_urls import urlpatterns
from gateway import app
from gateway.api import feedback_api
from gateway.app import GatewayApp
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.gateway import Gateway
from kvstore.keys.keyring import Keyring
from tests.controlplane.platform.api.request_examples import SAFE
from tests.controlplane.platform.api.test_role_matrix import real
from tests.controlplane.platform.api.world import Api, World

METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document()


def test_generating_the_document_emits_no_warning(capsys: pytest.CaptureFixture[str]) -> None:
    GENERATOR_STATS.reset()
    openapi_document()
    GENERATOR_STATS.emit_summary()
    assert not GENERATOR_STATS
    assert capsys.readouterr().err == ""


def test_document_is_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))
    for name, schema in document["components"]["schemas"].items():
        Draft202012Validator.check_schema(schema)
        assert name.isidentifier()


def test_every_reference_resolves(document: dict[str, Any]) -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [reference for inner in value.values() for reference in references(inner)]
        return [reference for inner in value for reference in references(inner)] if isinstance(value, list) else []

    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= known


def test_every_view_and_method_is_documented(document: dict[str, Any]) -> None:
    names = {operation["operationId"] for path in document["paths"].values() for operation in path.values()}
    declared = {
        f"{method}{pattern.callback.view_class.__name__.removesuffix('View')}"
        for pattern in urlpatterns
        for method in METHODS
        if pattern.callback.view_class.schema is not None and hasattr(pattern.callback.view_class, method)
    }
    assert declared <= names


def test_gateway_serves_exactly_the_documented_paths(document: dict[str, Any], tmp_path: Any) -> None:
    gateway = Gateway(InProcessBus(), keyring=Keyring.of(b"s"), state_dir=tmp_path, settings=GatewaySettings())
    served = GatewayApp(gateway)
    views = {"/api/" + str(pattern.pattern) for pattern in urlpatterns}
    for path in document["paths"]:
        is_ours = any(path.startswith(view.partition("<")[0]) for view in views if view != "/api/")
        assert served.handles(path.replace("{id}", "x")) != is_ours, path
    assert set(served._exact) | set(served._open) <= set(document["paths"])
    below = {prefix for prefix, _, _ in served._below}
    assert below == {prefix for prefix in below if any(path.startswith(prefix) for path in document["paths"])}
    for path, (method, _) in served._exact.items():
        assert list(document["paths"][path]) == [method.lower()]


def test_feedback_verbs_match_the_gateway(document: dict[str, Any]) -> None:
    verbs = {path.rsplit("/", 1)[1] for path in document["paths"] if path.startswith(feedback_api.PREFIX)}
    assert verbs == set(feedback_api.VERBS)


def test_fields_of_the_gateway_match_the_document(document: dict[str, Any]) -> None:
    asked = document["components"]["schemas"]["RouteRequest"]
    assert asked["required"] == ["model"]
    assert asked["properties"]["ttft_slo_s"]["anyOf"][0]["minimum"] == 1e-6
    assert app.ROUTE in document["paths"]


@pytest.mark.django_db
@pytest.mark.parametrize("name", sorted(set(SAFE) - {"OpenApiDocument", "PolicySchema", "RecordingTrace"}))
def test_responses_match_their_schemas(world: World, document: dict[str, Any], name: str) -> None:
    operation = next(
        path["get"]
        for path in document["paths"].values()
        if path.get("get", {}).get("operationId") == f"get{name.removesuffix('View')}"
    )
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    answer = Api(world).get(real(world, SAFE[name][0]))
    Draft202012Validator({**schema, "components": document["components"]}).validate(answer.json())


@pytest.mark.django_db
def test_document_is_served_to_callers_with_a_role(world: World, document: dict[str, Any]) -> None:
    assert Api(world, "viewer").get("/api/schema/").content == ApiRenderer().render(document)
