"""Requests that Schemathesis generates for one operation of the OpenAPI document when its test runs.

`schema.parametrize()` generates some eighty requests per operation while tests are collected, in each worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Set
from functools import cache

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source
from schemathesis.schemas import BaseSchema

from controlplane.platform.api.openapi import openapi_document

COVERING = 1 if "FUZZ_EXAMPLES" in os.environ else 3
"""`make fuzz` sends all requests that cover a schema field by field, `make test` each third: all fields have one
validation, which tests/house/test_resources.py tests.
"""


def operations(*, of: Set[str] = frozenset(), without: Set[str] = frozenset()) -> list[tuple[str, str]]:
    """Return (method, path) of each operation of the document: with a tag in `of`, or without the tags in `without`."""
    return [
        (method.upper(), path)
        for path, methods in openapi_document()["paths"].items()
        for method, operation in methods.items()
        if (of & set(operation["tags"]) if of else not without & set(operation["tags"]))
    ]


@cache
def whole_schema() -> BaseSchema:
    return schemathesis.openapi.from_dict(openapi_document())


def try_operation(
    schema: BaseSchema, operation: tuple[str, str], check: Callable[[schemathesis.Case], None], *, examples: int
) -> None:
    """Call `check` with requests of one operation: first those that cover its schema, then `examples` random ones."""
    method, path = operation
    chosen = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    test = build_operation_test(
        config=schema.config,
        operation=schema[path][method],
        test_func=check,
        explicit_settings=chosen,
        given_kwargs={},
        feedback=FeedbackSources(constants_value_source=make_constants_value_source(schema)),
    )
    test.hypothesis_explicit_examples = test.hypothesis_explicit_examples[::COVERING]  # type: ignore[attr-defined]
    test()
