"""Requests generated from the OpenAPI document, valid and invalid: no 5xx, and responses match the document."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from tests.controlplane.platform.api.generated_requests import operations, try_operation, whole_schema
from tests.controlplane.platform.api.world import World

EXAMPLES = 4 * int(os.environ.get("FUZZ_EXAMPLES", "100")) // 100
"""Random ones per operation, in addition to those that cover its schema one by one."""

TAGS = {"routing", "inference", "health"}
"""Operations of gateways, which test_schemathesis_gateway.py tries."""
REAL = {"slug": ("policy-a", "pool-a", "here", "acme"), "engine_id": ("e-a", "e-b"), "number": (1, 2)}


@schemathesis.serializer("application/x-ndjson", "application/gzip")
def as_it_is(_context: object, value: Any) -> bytes:
    """Send the generated trace as bytes."""
    return value if isinstance(value, bytes) else str(value).encode()


def map_path_parameters(_context: object, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Replace about half of the ids in addresses by those of existing objects."""
    if not path_parameters:
        return path_parameters
    chance = random.Random(repr(path_parameters))
    return {
        name: chance.choice(REAL[name]) if name in REAL and chance.random() < 0.5 else value
        for name, value in path_parameters.items()
    }


def map_headers(_context: object, headers: dict[str, Any] | None) -> dict[str, Any] | None:
    """Add the stored version to about half of the changes."""
    if not headers:
        return headers
    fits = "If-Match" in headers and random.Random(repr(headers)).random() < 0.5
    return {**headers, "If-Match": 'W/"1"'} if fits else headers


@cache
def schema() -> BaseSchema:
    schema = whole_schema().clone()
    schema.app = get_wsgi_application()
    schema.hook(map_path_parameters)
    schema.hook(map_headers)
    return schema


@pytest.fixture(autouse=True)
def open_connection() -> Iterator[None]:
    """Keep the connection, and with it the transaction of the test, for several requests."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.mark.long
@pytest.mark.django_db
@pytest.mark.parametrize("operation", operations(without=TAGS), ids=" ".join)
def test_generated_requests_cause_no_server_error(operation: tuple[str, str], world: World) -> None:
    headers = {"Authorization": f"Bearer {world.texts['admin_key']}"}
    checks = [not_a_server_error, status_code_conformance, content_type_conformance]

    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(headers=headers, checks=checks)

    try_operation(schema(), operation, check, examples=EXAMPLES)
