"""An invalid policy is rejected as a whole, with all of its errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.platform.actor import program
from controlplane.policies.document.paths import with_value
from controlplane.policies.document.problems import InvalidPolicyError, problems_of, validated
from controlplane.policies.document.schema import (
    MapSchema,
    ObjectSchema,
    SettingSchema,
    StageSchema,
    path_text,
    policy_schema,
)
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft, publish_version
from gateway.bus.bus import Bus
from routing.policy.admission_document import MAX_CLASSES
from routing.policy.policy_document import RoutingPolicy
from routing.registry import STAGES
from tests.controlplane.policies.document.policy_documents import unhurried, valid_documents

ACTOR = program("test")


def sentences_on(document: object) -> tuple[str, ...]:
    with pytest.raises(InvalidPolicyError) as caught:
        validated(document)
    return caught.value.problems


def test_map_names_and_values_are_validated_with_their_paths() -> None:
    classes: dict[str, Any] = {"batch": {"ttft_slo_s": 30, "urgency": 1}, "Not allowed": {}, "live": {"priority": 0.5}}
    messages = {problem.path: problem.message for problem in problems_of({"slo_classes": classes})}
    assert set(messages) == {"slo_classes.batch.urgency", "slo_classes.Not allowed", "slo_classes.live.priority"}
    assert messages["slo_classes.batch.urgency"].startswith("is unknown; ")
    many = {f"class-{number}": {} for number in range(MAX_CLASSES + 1)}
    assert [problem.path for problem in problems_of({"slo_classes": many})] == ["slo_classes"]
    assert validated({"slo_classes": {"batch": {"ttft_slo_s": 30}}}).slo_classes["batch"].ttft_slo_s == 30.0


def test_empty_document_is_the_default_policy_with_all_parameters() -> None:
    policy = validated({})
    assert policy.placement.params == {"beta": 8.0}
    assert policy.ttft_slo_s == RoutingPolicy().ttft_slo_s


def test_every_problem_is_reported_at_once_with_its_path() -> None:
    document = {
        "ttft_slo_s": -1,
        "queue_limit": "many",
        "prefill_cost": {"base_s": 99, "per_token_s": None, "bogus": 1},
        "placement": {"params": {}},
        "order": {"name": "late_last", "params": {"hurry": 1}},
        "surprise": True,
    }
    assert {problem.path for problem in problems_of(document)} == {
        "ttft_slo_s",
        "queue_limit",
        "prefill_cost.base_s",
        "prefill_cost.per_token_s",
        "prefill_cost.bogus",
        "placement.name",
        "order.params.hurry",
        "surprise",
    }


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"placement": {"name": "least_cots"}}, '$.placement.name: "least_cots" is unknown; did you mean least_cost?'),
        ({"order": {"name": "fifoo"}}, '$.order.name: "fifoo" is unknown; did you mean fifo?'),
        (
            {"placement": {"name": "dual_map", "params": {"selection": "slo"}}},
            '$.placement.params.selection: is not a setting; "slo" always applies. Remove it',
        ),
        (
            {"automation": {"health": {"flaps": 5}}},
            "$.automation.health.flaps: is not a setting; 3 always applies. Remove it",
        ),
        ({"advisories": "gate"}, '$.advisories: "gate" is unknown; did you mean gated?'),
        ({"queue_limt": 1}, "$.queue_limt: is unknown; did you mean queue_limit?"),
        (
            {"placement": {"name": "dual_map", "params": {"key_block": 1}}},
            "$.placement.params.key_block: is unknown; did you mean key_blocks?",
        ),
        ({"order": {"name": "fifo", "params": {"x": 1}}}, "$.order.params.x: is unknown; it has no settings"),
        ({"ttft_slo_s": 4000}, "$.ttft_slo_s: 4,000 is above 3,600 s"),
        ({"max_wait_s": 0}, "$.max_wait_s: 0 is not above 0 s"),
        ({"prefill_window_tokens": 2.5}, "$.prefill_window_tokens: 2.5 is not a whole number"),
        ({"prefill_window_tokens": 8.0}, "$.prefill_window_tokens: 8.0 is not a whole number; write 8"),
        ({"prefill_window_tokens": True}, "$.prefill_window_tokens: expected a number, got true or false"),
        ({"prefill_window_tokens": "8"}, '$.prefill_window_tokens: "8" is not a number'),
        ({"placement": []}, "$.placement: expected an object, got a list"),
        ({"placement": {"name": 3}}, "$.placement.name: expected text, got a number"),
        ({"max_wait_s": 10**400}, "$.max_wait_s: 1.00e+400 is above 3,600 s"),
    ],
)
def test_problem_names_the_error_and_the_expected_value(document: Any, sentence: str) -> None:
    assert sentences_on(document) == (sentence,)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("path", ["ttft_slo_s", "lookahead_s"])
def test_numbers_must_be_finite(path: str, value: float) -> None:
    assert sentences_on({path: value}) == (f"$.{path}: is not a finite number",)


def test_stage_parameters_must_be_finite() -> None:
    (problem,) = sentences_on({"placement": {"name": "least_cost", "params": {"beta": float("nan")}}})
    assert problem.startswith("$.placement.params.beta")


@pytest.mark.parametrize("document", [None, [], "least_cost", 3])
def test_document_must_be_an_object(document: Any) -> None:
    assert sentences_on(document)[0].startswith("$: expected an object")


def test_unknown_stage_error_lists_the_known_ones() -> None:
    problems = sentences_on({"placement": {"name": "magic"}, "order": {"name": "magic"}})
    assert [problem.partition(":")[0] for problem in problems] == ["$.placement.name", "$.order.name"]
    assert "least_cost" in problems[0]
    assert "late_last" in problems[1]


def test_newer_schema_is_rejected() -> None:
    (problem,) = sentences_on({"schema_version": 99})
    assert problem.startswith("$.schema_version")


@unhurried
@given(valid_documents(partial=True))
def test_document_within_every_range_is_valid(document: dict[str, Any]) -> None:
    assert isinstance(validated(document), RoutingPolicy)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
NAMES = st.sampled_from(["placement", "order", "name", "params", "ttft_slo_s", "prefill_cost", "base_s", "beta"])


@unhurried
@given(st.dictionaries(NAMES | st.text(max_size=4), JSON | st.dictionaries(NAMES, JSON, max_size=3), max_size=5))
def test_invalid_policy_is_reported_without_a_crash(document: dict[str, Any]) -> None:
    problems = problems_of(document)
    assert all(problem.message for problem in problems)
    if not problems:
        validated(document)


def every_setting(schema: Any, document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], SettingSchema]]:
    """Yield each setting of the schema with a document in which it is active."""
    for member in schema.members.values():
        if isinstance(member, SettingSchema):
            yield document, member
        elif isinstance(member, ObjectSchema):
            yield from every_setting(member, document)
        elif isinstance(member, MapSchema):
            path = (*member.path, "batch")
            entries = [(document, member.entry)]
            if isinstance(member.entry, ObjectSchema):
                entries = list(every_setting(member.entry, with_value(document, path, {})))
            for inside, setting in entries:
                yield inside, replace(setting, path=(*path, *setting.path))
        else:
            for name, rule in member.rules.items():
                yield from every_setting(rule, with_value(document, member.path, {"name": name, "params": {}}))


def broken_rules() -> Iterator[tuple[dict[str, Any], str]]:
    """Yield one invalid document per rule of the schema, with the path of the rule."""
    for document, setting in every_setting(policy_schema(), {}):
        path = path_text(setting.path)
        wrong: dict[str, Any] = {"kind": ["no", "number"], "nothing": None}
        if setting.low is not None:
            wrong["low"] = int(setting.low) if setting.above_low else int(setting.low) - 1
        if setting.high is not None:
            wrong["high"] = int(setting.high) + 1
        if setting.kind == "whole":
            wrong["fraction"] = (setting.low or 0) + 0.5
        for value in wrong.values():
            yield with_value(document, setting.path, value), path
    for stage in policy_schema().members.values():
        if isinstance(stage, StageSchema):
            name = path_text(stage.name_path)
            for value in ("", "magic", 7, None, "x" * 65):
                yield with_value({}, stage.name_path, value), name
            yield {stage.path[0]: {"params": {}}}, name
            yield {stage.path[0]: 1}, stage.path[0]
    for where in ((), ("placement",), ("order",), ("prefill_cost",), ("placement", "params")):
        document = {} if not where else {"placement": {"name": "least_cost"}, "order": {"name": "fifo"}}
        unknown = (*where, "zzz")
        yield with_value(document, unknown, 1), path_text(unknown)


def test_every_setting_and_every_rule_has_a_negative_case() -> None:
    tried = {path for _, path in broken_rules()}
    settings = {path_text(setting.path) for _, setting in every_setting(policy_schema(), {})}
    assert settings <= tried
    assert {f"{stage}.name" for stage in STAGES} <= tried


@pytest.mark.django_db
def test_document_that_breaks_one_rule_is_rejected_and_the_old_one_is_kept(policy: Policy, bus: Bus) -> None:
    live = draft(policy, {"ttft_slo_s": 2.0}, actor=ACTOR)
    publish_version(live, instead_of=None, actor=ACTOR)
    for document, path in broken_rules():
        with pytest.raises(InvalidPolicyError) as caught:
            draft(policy, document, actor=ACTOR)
        assert [problem.path for problem in caught.value.field_problems] == [path], document
        assert f"$.{path}: " in str(caught.value)
    policy.refresh_from_db()
    assert policy.live_version == live
    assert list(PolicyVersion.objects.values_list("number", flat=True)) == [1]
