"""Policy files: whole versions or their routing half, and errors in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from planning.documents import automation_document
from planning.documents.automation_document import AutomationPolicy
from planning.documents.scaling_document import ScalingDocument
from routing.policy import policy_document
from routing.policy.policy_document import RoutingPolicy
from routing.policy.schema_versions import SchemaLine
from simulator.runs.policy_file import (
    MAX_DOCUMENT_BYTES,
    PolicyDocuments,
    UnreadablePolicyError,
    read_automation,
    read_policy,
)

AUTOMATION = AutomationPolicy(scaling=ScalingDocument(mode="act", max_engines=5))
ROUTING = RoutingPolicy(ttft_slo_s=2.0)


def written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "document.json"
    path.write_bytes(content.encode() if isinstance(content, str) else msgspec.json.encode(content))
    return path


def test_a_whole_policy_is_read_in_both_halves(tmp_path: Path) -> None:
    document = {**msgspec.to_builtins(ROUTING), "automation": msgspec.to_builtins(AUTOMATION)}
    documents = read_policy(written(tmp_path, document))
    assert type(documents.routing) is RoutingPolicy
    assert documents == PolicyDocuments(routing=ROUTING, automation=AUTOMATION)


def test_a_routing_policy_alone_has_no_automation(tmp_path: Path) -> None:
    assert read_policy(written(tmp_path, ROUTING)) == PolicyDocuments(routing=ROUTING)


def test_an_automation_document_round_trips(tmp_path: Path) -> None:
    assert read_automation(written(tmp_path, AUTOMATION)) == (AUTOMATION, ())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", ["no policy"]),
        ({"automations": {}}, ["`automations`", "known there are", "ttft_slo_s", ", automation"]),
        ({"automation": {"scale": {}}}, ["`scale`", "$.automation", "health, rebalance, scaling, ratio"]),
        ({"automation": {"scaling": {"max": 3}}}, ["`max`", "$.automation.scaling", "min_engines, max_engines"]),
        ({"automation": {"scaling": {"max_up": 0}}}, ["$.automation.scaling.max_up"]),
        ({"automation": {"scaling": {"min_engines": 9, "max_engines": 2}}}, ["automation", "$.scaling.min_engines"]),
        ({"ttft_slo_s": "soon"}, ["$.ttft_slo_s"]),
    ],
)
def test_errors_of_a_policy_are_reported_with_their_path(tmp_path: Path, content: object, words: list[str]) -> None:
    with pytest.raises(UnreadablePolicyError) as rejected:
        read_policy(written(tmp_path, content))
    assert [word for word in words if word not in str(rejected.value)] == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "no automation document"),
        ({"scaling": {"max_up": 0}}, r"\$.scaling.max_up"),
        ({"scaling": {"min_engines": 9, "max_engines": 2}}, r"\$.scaling.min_engines"),
        ({"scalin": {}}, "known there are schema_version, health"),
    ],
)
def test_an_invalid_automation_document_is_rejected_with_the_path(tmp_path: Path, content: object, words: str) -> None:
    with pytest.raises(UnreadablePolicyError, match=words):
        read_automation(written(tmp_path, content))


def test_missing_and_huge_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(UnreadablePolicyError, match="No such file"):
        read_policy(tmp_path / "none.json")
    with pytest.raises(UnreadablePolicyError, match="is over"):
        read_policy(written(tmp_path, " " * (MAX_DOCUMENT_BYTES + 1)))


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with another previous schema, in which the objective and the smallest fleet had other names."""

    def routing(old: dict[str, Any]) -> dict[str, Any]:
        return {**{name: old[name] for name in old if name != "slo_ms"}, "ttft_slo_s": old["slo_ms"] / 1000}

    def automation(old: dict[str, Any]) -> dict[str, Any]:
        return {"scaling": {"min_engines": old["engines"]}}

    monkeypatch.setattr(policy_document, "ROUTING_SCHEMA", SchemaLine("routing policies", 2, routing))
    line = SchemaLine("automation policies", 2, automation)
    monkeypatch.setattr(automation_document, "AUTOMATION_SCHEMA", line)


@pytest.mark.usefixtures("before")
def test_a_policy_of_the_previous_schema_is_upgraded_in_both_halves_with_notes(tmp_path: Path) -> None:
    old = {"schema_version": 1, "slo_ms": 2500, "automation": {"schema_version": 1, "engines": 3}}
    path = written(tmp_path, old)
    documents = read_policy(path)
    assert documents.routing == RoutingPolicy(ttft_slo_s=2.5)
    assert documents.automation == AutomationPolicy(scaling=ScalingDocument(min_engines=3))
    assert documents.notes == (
        f"{path} is of schema 1; it was read as schema 2, and the file left as it is",
        f"{path}: automation is of schema 1; it was read as schema 2, and the file left as it is",
    )
    assert msgspec.json.decode(path.read_bytes()) == old


@pytest.mark.usefixtures("before")
def test_the_two_halves_have_separate_schemas(tmp_path: Path) -> None:
    path = written(tmp_path, {"schema_version": 2, "automation": {"schema_version": 1, "engines": 3}})
    assert [": automation is of schema 1" in note for note in read_policy(path).notes] == [True]


@pytest.mark.usefixtures("before")
def test_an_automation_document_of_the_previous_schema_is_upgraded_too(tmp_path: Path) -> None:
    policy, notes = read_automation(written(tmp_path, {"schema_version": 1, "engines": 3}))
    assert policy.scaling.min_engines == 3
    assert len(notes) == 1


@pytest.mark.parametrize("document", [{"schema_version": 9}, {"automation": {"schema_version": 9}}])
def test_a_policy_of_a_newer_program_is_rejected_with_the_remedy(tmp_path: Path, document: object) -> None:
    with pytest.raises(UnreadablePolicyError, match=r"9 is newer than 2.*upgrade this program"):
        read_policy(written(tmp_path, document))


@pytest.mark.parametrize("content", ["3", "[]", "null"])
def test_a_document_that_is_not_an_object_is_rejected(tmp_path: Path, content: str) -> None:
    with pytest.raises(UnreadablePolicyError, match="is no policy"):
        read_policy(written(tmp_path, content))
