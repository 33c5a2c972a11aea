"""The form represents the document: its values are read back, and an edited value changes only its path."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.policies.document.form import CHOICE, PolicyFormField, as_posted, form_groups, typed_document
from controlplane.policies.document.paths import same_value, value_at
from controlplane.policies.document.problems import problems_of
from controlplane.policies.document.schema import SWITCH, policy_schema
from controlplane.policies.document.text import completed, document_text, read_document
from routing.registry import PLACEMENTS, STAGES
from tests.controlplane.policies.document.policy_documents import unhurried, valid_documents

DEFAULTS = completed({})


def fields(document: Any, live: Any = DEFAULTS) -> dict[str, PolicyFormField]:
    """Return the active controls by path."""
    return {
        field.path: field
        for group in form_groups(document, live)
        for field in (*group.fields, *(field for rule in group.rules if rule.chosen for field in rule.fields))
    }


@unhurried
@given(valid_documents(partial=True))
def test_unchanged_form_changes_nothing(document: dict[str, Any]) -> None:
    assert same_value(typed_document(document, document, as_posted(document)), document)


@unhurried
@given(valid_documents(), valid_documents())
def test_every_valid_document_survives_a_round_trip_through_the_form(
    document: dict[str, Any], shown: dict[str, Any]
) -> None:
    """Entering a whole document into the form of another gives that document, and its form again."""
    # The form has no controls for maps; they are changed in the JSON.
    shown = {**shown, "slo_classes": document["slo_classes"]}
    shown["fairness"] = {**shown["fairness"], "weights": document["fairness"]["weights"]}
    typed = typed_document(shown, shown, as_posted(document))
    assert same_value(completed(typed), completed(document))
    text = document_text(typed)
    assert as_posted(read_document(text)) == as_posted(document)


def test_every_setting_has_a_description_a_range_and_a_unit_if_it_counts_something() -> None:
    for group in form_groups(DEFAULTS, DEFAULTS):
        assert group.title
        for field in (*group.fields, *(field for rule in group.rules for field in rule.fields)):
            assert field.title
            assert field.sentence.endswith(".")
            if field.kind not in (CHOICE, SWITCH) and not field.choices:
                assert field.range_words and field.unit and field.usual_words and field.default


def test_every_registered_rule_can_be_chosen_and_has_a_description() -> None:
    groups = {group.path: group for group in form_groups(DEFAULTS, DEFAULTS) if group.path}
    assert groups.keys() == STAGES.keys()
    for stage, group in groups.items():
        assert [rule.name for rule in group.rules] == list(STAGES[stage])
        assert all(rule.sentence.endswith(".") for rule in group.rules)


def test_controls_have_unique_ids() -> None:
    groups = form_groups(DEFAULTS, DEFAULTS)
    every = [field.key for group in groups for field in group.fields]
    every += [field.key for group in groups for rule in group.rules for field in rule.fields]
    assert len(every) == len(set(every))


def test_typed_number_changes_only_its_path() -> None:
    typed = typed_document(DEFAULTS, DEFAULTS, {"max_wait_s": "30", "placement.params.beta": "2.5"})
    assert typed["max_wait_s"] == 30
    assert typed["placement"]["params"]["beta"] == 2.5
    assert {name for name in typed if typed[name] != DEFAULTS[name]} == {"max_wait_s", "placement"}


@pytest.mark.parametrize("text", ["abc", "1,000", "0x10", "NaN", "1e9999", "--1", "١"])
def test_text_that_is_not_a_number_is_kept_and_reported(text: str) -> None:
    typed = typed_document(DEFAULTS, DEFAULTS, {"queue_limit": text})
    assert typed["queue_limit"] == text
    (problem,) = problems_of(typed)
    assert problem.path == "queue_limit"
    assert fields(typed)["queue_limit"].value == text


def test_cleared_setting_is_omitted_so_that_the_default_applies() -> None:
    typed = typed_document(DEFAULTS, DEFAULTS, {"queue_limit": " "})
    assert "queue_limit" not in typed
    assert fields(typed)["queue_limit"].value == ""
    assert completed(typed)["queue_limit"] == DEFAULTS["queue_limit"]


def test_new_rule_gets_its_own_parameters_and_drops_the_old_ones() -> None:
    typed = typed_document(DEFAULTS, DEFAULTS, {**as_posted(DEFAULTS), "placement.name": "dual_map"})
    assert typed["placement"] == {"name": "dual_map", "params": {}}
    assert not problems_of(typed)
    assert fields(typed)["placement.params.key_blocks"].default == "2"


def test_unknown_rule_is_shown_and_kept() -> None:
    document = {**DEFAULTS, "placement": {"name": "magic", "params": {"x": 1}}}
    choice = fields(document)["placement.name"]
    assert choice.value == "magic"
    assert choice.choices == (*PLACEMENTS, "magic")
    assert same_value(typed_document(document, document, as_posted(document)), document)


def test_omitted_stage_shows_its_default_rule() -> None:
    document = {name: value for name, value in DEFAULTS.items() if name != "order"}
    assert fields(document)["order.name"].value == "late_last"
    assert fields(document)["order.params.forget_blocks"].value == "on"
    assert "order" not in typed_document(document, document, as_posted(document))


def test_changes_in_the_json_and_in_the_form_are_combined() -> None:
    edited = {**DEFAULTS, "ttft_slo_s": 3}
    typed = typed_document(edited, DEFAULTS, {**as_posted(DEFAULTS), "max_wait_s": "30"})
    assert (typed["ttft_slo_s"], typed["max_wait_s"]) == (3, 30)


def test_changed_setting_shows_its_live_value() -> None:
    document = {**DEFAULTS, "ttft_slo_s": 3.0}
    field = fields(document)["ttft_slo_s"]
    assert (field.changed, field.live, field.value) == (True, "5", "3")
    assert not fields(document)["max_wait_s"].changed


def test_unselected_rule_shows_live_parameters_or_defaults() -> None:
    live = completed({"placement": {"name": "dual_map", "params": {"key_blocks": 7}}})
    group = next(group for group in form_groups(DEFAULTS, live) if group.path == "placement")
    shown = {rule.name: {field.path: field.value for field in rule.fields} for rule in group.rules}
    assert shown["dual_map"]["placement.params.key_blocks"] == "7"
    assert shown["least_cost"]["placement.params.beta"] == "8"


@pytest.mark.parametrize("document", [[], "x", 3, None, {"placement": 1}, {"prefill_cost": []}])
def test_form_of_a_non_document_is_empty_and_loses_nothing(document: Any) -> None:
    assert fields(document)
    assert same_value(typed_document(document, document, as_posted(document)), document)


@unhurried
@given(st.dictionaries(st.sampled_from(sorted(as_posted(DEFAULTS))), st.text(max_size=12)))
def test_any_input_gives_a_document_that_can_be_validated(posted: dict[str, str]) -> None:
    typed = typed_document(DEFAULTS, DEFAULTS, posted)
    for problem in problems_of(typed):
        assert problem.path.partition(".")[0] in policy_schema().members
    assert value_at(typed, ("schema_version",)) == DEFAULTS["schema_version"]


def test_setting_with_few_values_lists_them_and_keeps_an_invalid_one_visible() -> None:
    document = completed({"placement": {"name": "dual_map"}, "advisories": "slow"})
    fields = {
        field.path: field
        for group in form_groups(document, document)
        for field in (*group.fields, *(field for rule in group.rules if rule.chosen for field in rule.fields))
    }
    assert fields["advisories"].choices == ("gated", "off", "symphony", "slow")
    assert fields["placement.params.key_blocks"].choices == ()
