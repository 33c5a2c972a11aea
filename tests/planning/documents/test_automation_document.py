import msgspec
import pytest
from msgspec.structs import replace

from planning.documents.automation_document import AutomationPolicy, contradictions


def fields(schema: dict, definitions: dict, path: str = ""):
    target = schema.get("$ref") or (schema.get("allOf") or [{}])[0].get("$ref")
    node = definitions[target.rpartition("/")[2]] if target else schema
    for name, part in node.get("properties", {}).items():
        yield f"{path}.{name}", part
        yield from fields(part, definitions, f"{path}.{name}")


def test_every_field_has_a_title_and_a_description() -> None:
    schema = msgspec.json.schema(AutomationPolicy)
    declared = dict(fields(schema, schema["$defs"]))
    assert len(declared) > 50
    assert not [path for path, part in declared.items() if not part.get("title") or not part.get("description")]


def test_an_automation_document_round_trips() -> None:
    policy = AutomationPolicy()
    assert msgspec.json.decode(msgspec.json.encode(policy), type=AutomationPolicy) == policy


@pytest.mark.parametrize("document", [{"scaling": {"max_up": 0}}, {"health": {"mode": "on"}}, {"ratios": {}}])
def test_out_of_range_values_are_rejected(document: dict) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(document, AutomationPolicy)


def test_the_default_has_no_contradictions() -> None:
    assert contradictions(AutomationPolicy()) == []


@pytest.mark.parametrize(
    ("part", "changes", "path"),
    [
        ("scaling", {"min_engines": 9, "max_engines": 3}, "$.scaling.min_engines"),
        ("scaling", {"budget_cost": 10.0}, "$.scaling.engine_h_cost"),
        ("rebalance", {"cv_low": 2.0}, "$.rebalance.cv_low"),
        ("health", {"ejection_s": 900.0}, "$.health.ejection_s"),
    ],
)
def test_contradicting_fields_are_named(part: str, changes: dict, path: str) -> None:
    policy = AutomationPolicy()
    wrong = replace(policy, **{part: replace(getattr(policy, part), **changes)})
    (fault,) = contradictions(wrong)
    assert path in fault
