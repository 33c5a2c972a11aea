"""Documents of the previous schema are upgraded on a copy; other versions are rejected with the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from routing.policy.schema_versions import SchemaError, SchemaLine


def seconds(document: dict[str, Any]) -> dict[str, Any]:
    """Convert schema 2, in milliseconds, to schema 3, in seconds."""
    return {
        **{name: value for name, value in document.items() if name != "wait_ms"},
        "wait_s": document["wait_ms"] / 1e3,
    }


LINE = SchemaLine("plans", 3, seconds)


def test_the_previous_schema_is_upgraded_and_its_source_stays_unchanged() -> None:
    stored = {"schema_version": 2, "wait_ms": 500, "more": {"kept": [1]}}
    assert LINE.upgraded(stored) == {"schema_version": 3, "wait_s": 0.5, "more": {"kept": [1]}}
    assert stored == {"schema_version": 2, "wait_ms": 500, "more": {"kept": [1]}}


def test_an_upgrader_that_mutates_its_input_changes_only_a_copy() -> None:
    def careless(document: dict[str, Any]) -> dict[str, Any]:
        document["inner"]["touched"] = True
        return document

    stored = {"schema_version": 1, "inner": {}}
    assert SchemaLine("plans", 2, careless).upgraded(stored)["inner"] == {"touched": True}
    assert stored["inner"] == {}


@pytest.mark.parametrize("document", [{"schema_version": 3, "a": 1}, {"a": 1}])
def test_current_documents_and_those_without_a_schema_stay_unchanged(document: dict[str, Any]) -> None:
    assert LINE.upgraded(document) == document


def test_a_newer_document_is_rejected_with_the_remedy() -> None:
    with pytest.raises(SchemaError, match=r"4 is newer than 3, the schema of plans.*upgrade this program"):
        LINE.upgraded({"schema_version": 4})


def test_a_document_without_an_upgrader_is_rejected_with_the_remedy() -> None:
    with pytest.raises(SchemaError, match="1 is too old: this program reads plans of schema 3"):
        LINE.upgraded({"schema_version": 1, "wait_ms": 5})


@pytest.mark.parametrize("version", ["2", None, True])
def test_an_unusable_schema_version_is_left_to_validation(version: Any) -> None:
    assert LINE.upgraded({"schema_version": version}) == {"schema_version": version}


@pytest.mark.parametrize("document", [{}, {"wait_ms": None}, {"wait_ms": "5"}])
def test_a_document_that_falsely_claims_the_previous_schema_is_rejected(document: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="does not match that schema"):
        LINE.upgraded({"schema_version": 2, **document})
