"""A wrong policy is refused whole, with everything that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.services.policy_problems import InvalidPolicyError, validated
from routing.policy_document import RoutingPolicy


def problems_of(document: object) -> tuple[str, ...]:
    with pytest.raises(InvalidPolicyError) as caught:
        validated(document)
    return caught.value.problems


def test_an_empty_document_is_the_default_policy() -> None:
    assert validated({}) == RoutingPolicy()


def test_every_problem_is_told_with_its_path() -> None:
    document = {
        "ttft_slo_s": -1,
        "max_tickets": "many",
        "prefill_cost": {"base_s": 99, "per_token_s": None, "bogus": 1},
        "placement": {"params": {}},
        "surprise": True,
    }
    paths = {problem.partition(":")[0] for problem in problems_of(document)}
    assert paths == {
        "$.ttft_slo_s",
        "$.max_tickets",
        "$.prefill_cost.base_s",
        "$.prefill_cost.per_token_s",
        "$.prefill_cost.bogus",
        "$.placement.name",
        "$.surprise",
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("path", ["ttft_slo_s", "grant_lookahead_s"])
def test_numbers_must_be_finite(path: str, value: float) -> None:
    assert problems_of({path: value}) == (f"$.{path}: is not a finite number",)


def test_parameters_of_stages_must_be_finite() -> None:
    (problem,) = problems_of({"placement": {"name": "least_cost", "params": {"beta": float("nan")}}})
    assert problem.startswith("$.placement.params.beta")


@pytest.mark.parametrize("document", [None, [], "least_cost", 3])
def test_a_document_is_an_object(document: Any) -> None:
    assert problems_of(document)[0].startswith("$: expected an object")


def test_unknown_stages_list_the_known_ones() -> None:
    problems = problems_of({"placement": {"name": "magic"}, "order": {"name": "magic"}})
    assert [problem.partition(":")[0] for problem in problems] == ["$.placement.name", "$.order.name"]
    assert "least_cost" in problems[0]
    assert "shed" in problems[1]


def test_a_newer_schema_is_refused() -> None:
    (problem,) = problems_of({"schema_version": 99})
    assert problem.startswith("$.schema_version")
