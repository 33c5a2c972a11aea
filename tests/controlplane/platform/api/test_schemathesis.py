"""Requests generated from the OpenAPI document, valid and invalid: never a 5xx, and answers as described."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from controlplane.platform.api.openapi import openapi_document
from tests.controlplane.platform.api.world import World

EXAMPLES = 4 * int(os.environ.get("FUZZ_EXAMPLES", "100")) // 100
"""Random ones per operation, in addition to some eighty that cover its schema one by one."""

schema = schemathesis.openapi.from_dict(openapi_document()).exclude(tag=["routing", "inference", "health"])
schema.app = get_wsgi_application()
REAL = {"slug": ("policy-a", "pool-a", "here", "acme"), "engine_id": ("e-a", "e-b"), "number": (1, 2)}


@schemathesis.serializer("application/x-ndjson", "application/gzip")
def as_it_is(_context: object, value: Any) -> bytes:
    """Send the generated trace as bytes."""
    return value if isinstance(value, bytes) else str(value).encode()


@schema.hook
def map_path_parameters(_context: object, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Let about half of the addresses name an existing object."""
    if not path_parameters:
        return path_parameters
    chance = random.Random(repr(path_parameters))
    return {
        name: chance.choice(REAL[name]) if name in REAL and chance.random() < 0.5 else value
        for name, value in path_parameters.items()
    }


@schema.hook
def map_headers(_context: object, headers: dict[str, Any] | None) -> dict[str, Any] | None:
    """Let about half of the changes name the stored version."""
    if not headers:
        return headers
    fits = "If-Match" in headers and random.Random(repr(headers)).random() < 0.5
    return {**headers, "If-Match": 'W/"1"'} if fits else headers


@pytest.fixture(autouse=True)
def open_connection() -> Iterator[None]:
    """Keep the connection, and with it the test's transaction, over several requests."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.mark.django_db
@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_nothing_generated_breaks_the_api(case: schemathesis.Case, world: World) -> None:
    headers = {"Authorization": f"Bearer {world.texts['admin_key']}"}
    checks = [not_a_server_error, status_code_conformance, content_type_conformance]
    case.call_and_validate(headers=headers, checks=checks)
