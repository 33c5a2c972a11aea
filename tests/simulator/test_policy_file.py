"""Policy files: whole versions or their routing half, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from planning.automation_document import AutomationPolicy
from planning.scaling_document import ScalingDocument
from routing.policy_document import RoutingPolicy
from simulator.policy_file import MAX_DOCUMENT_BYTES, UnreadablePolicyError, read_automation, read_policy

AUTOMATION = AutomationPolicy(scaling=ScalingDocument(mode="act", max_engines=5))
ROUTING = RoutingPolicy(ttft_slo_s=2.0)


def written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "document.json"
    path.write_bytes(content.encode() if isinstance(content, str) else msgspec.json.encode(content))
    return path


def test_a_whole_policy_is_read_in_both_halves(tmp_path: Path) -> None:
    document = {**msgspec.to_builtins(ROUTING), "automation": msgspec.to_builtins(AUTOMATION)}
    routing, automation = read_policy(written(tmp_path, document))
    assert (type(routing), routing, automation) == (RoutingPolicy, ROUTING, AUTOMATION)


def test_a_routing_policy_alone_steers_nothing(tmp_path: Path) -> None:
    assert read_policy(written(tmp_path, ROUTING)) == (ROUTING, None)


def test_an_automation_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_automation(written(tmp_path, AUTOMATION)) == AUTOMATION


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
def test_what_is_wrong_with_a_policy_is_said_with_its_place(tmp_path: Path, content: object, words: list[str]) -> None:
    with pytest.raises(UnreadablePolicyError) as refused:
        read_policy(written(tmp_path, content))
    assert [word for word in words if word not in str(refused.value)] == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "no automation document"),
        ({"scaling": {"max_up": 0}}, r"\$.scaling.max_up"),
        ({"scaling": {"min_engines": 9, "max_engines": 2}}, r"\$.scaling.min_engines"),
        ({"scalin": {}}, "known there are schema_version, health"),
    ],
)
def test_a_wrong_automation_document_is_refused_with_the_place(tmp_path: Path, content: object, words: str) -> None:
    with pytest.raises(UnreadablePolicyError, match=words):
        read_automation(written(tmp_path, content))


def test_files_that_are_missing_or_huge_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadablePolicyError, match="No such file"):
        read_policy(tmp_path / "none.json")
    with pytest.raises(UnreadablePolicyError, match="is over"):
        read_policy(written(tmp_path, " " * (MAX_DOCUMENT_BYTES + 1)))
