"""Requests generated from the gateway's part of the OpenAPI document, sent to a gateway process: no 5xx."""

from __future__ import annotations

import json
import os
import random
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from bench.live.live_fleet import API_KEY, MODEL, LiveFleet, live_fleet
from gateway.requests.formats.endpoints import BY_PATH
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.controlplane.platform.api.generated_requests import operations, try_operation, whole_schema
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.processes
EXAMPLES = 12 * int(os.environ.get("FUZZ_EXAMPLES", "100")) // 100
TAGS = {"routing", "inference", "health"}
SERVED = {"model": MODEL}
PROMPTS = ("messages", "prompt", "token_ids", "block_hashes")
AUTHORIZED = {"Authorization": f"Bearer {API_KEY}"}

decided: list[str] = []
"""Ids of decisions that the gateway made for these tests."""


def chance(*of: object) -> random.Random:
    """Return a random generator that is seeded by the request."""
    return random.Random(repr(of))


def aim(case: schemathesis.Case) -> None:
    """Change most requests to the served model, one prompt, and existing decisions, so that they pass validation."""
    if chance(case.body, case.path_parameters).random() < 0.3:
        return
    if "id" in (case.path_parameters or {}):
        case.path_parameters["id"] = chance(case.path_parameters).choice([*decided, MODEL])
    if not isinstance(case.body, dict):
        return
    if case.path in BY_PATH and BY_PATH[case.path].is_form:
        case.body = {**case.body, **SERVED}
    elif case.path in BY_PATH:
        texts = dict.fromkeys(("prompt", "input", "query", "documents", "text_1", "text_2"), "Who?")
        prompt = {**texts, "messages": [{"role": "user", "content": "Who?"}], "tokens": [1]}
        case.body = prompt | case.body | SERVED | {"max_tokens": 2, "max_output_tokens": 2}
    elif case.path.endswith("/route"):
        case.body = answerable(case.body)
    elif isinstance(case.body.get("requests"), list):
        case.body["requests"] = [answerable(item) for item in case.body["requests"]]


def answerable(asked: Any) -> Any:
    """Return a chat request for the served model, with one of its prompts or a random one."""
    if not isinstance(asked, dict):
        return asked
    given = [name for name in PROMPTS if asked.get(name) is not None]
    chosen = chance(asked).choice(given or ["prompt"])
    rest = {name: value for name, value in asked.items() if name not in PROMPTS}
    return rest | SERVED | {chosen: asked.get(chosen) or "Who?"}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFleet]:
    """Run a gateway process over two fast engines; it has decided several requests."""
    policy = RoutingPolicy(placement=Stage(name="least_cost"))
    with live_fleet(tmp_path_factory.mktemp("fleet"), policy, engines=2, time_scale=50, block_tokens=16) as fleet:
        for number in range(8):
            body = json.dumps({"model": MODEL, "prompt": f"Question {number}"}).encode()
            request = urllib.request.Request(f"{fleet.url}/api/v1/route", body, AUTHORIZED)
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                decided.append(json.loads(answer.read())["decision_id"])
        yield fleet
        decided.clear()


def test_document_has_every_endpoint_of_the_decision_api() -> None:
    assert {f"{method} {path}" for method, path in operations(of=TAGS)} >= {
        "POST /api/v1/route",
        "POST /api/v1/route/batch",
        "POST /api/v1/requests/{id}/first_token",
        "POST /api/v1/requests/{id}/complete",
        "POST /api/v1/requests/{id}/fail",
        "GET /api/v1/explain/{id}",
    }


@pytest.mark.parametrize("operation", operations(of=TAGS), ids=" ".join)
def test_generated_requests_cause_no_server_error_of_the_gateway(operation: tuple[str, str], fleet: LiveFleet) -> None:
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

    def check(case: schemathesis.Case) -> None:
        aim(case)
        case.call_and_validate(base_url=fleet.url, headers=AUTHORIZED, timeout=PATIENCE_S, checks=checks)

    try_operation(whole_schema(), operation, check, examples=EXAMPLES)
