"""Policy documents as text: unchanged values, a fixed order, and errors with their position."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.policies.document.numbers import json_number, number_words
from controlplane.policies.document.paths import same_value
from controlplane.policies.document.problems import InvalidPolicyError
from controlplane.policies.document.text import MAX_TEXT_BYTES, completed, document_text, ordered, read_document
from tests.controlplane.policies.document.policy_documents import unhurried, valid_documents


@unhurried
@given(valid_documents(partial=True))
def test_document_is_parsed_as_it_was_written(document: dict[str, Any]) -> None:
    assert same_value(read_document(document_text(document)), document)


@unhurried
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_number_is_parsed_as_the_same_number(value: float) -> None:
    assert float(json.loads(json_number(value))) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(8.0, "8"), (8e-05, "0.00008"), (2e-9, "2e-9"), (1e21, "1e+21"), (0.1, "0.1"), (-3.0, "-3"), (-0.0, "0")],
)
def test_numbers_are_formatted_as_browsers_format_them(value: float, text: str) -> None:
    assert json_number(value) == text


@pytest.mark.parametrize(
    ("value", "words"), [(1_000_000, "1,000,000"), (3600.0, "3,600"), (0.05, "0.05"), (10**400, "1.00e+400")]
)
def test_numbers_in_sentences_have_thousands_separators(value: float, words: str) -> None:
    assert number_words(value) == words


def test_names_follow_the_order_of_the_form_with_unknown_ones_last() -> None:
    document = {"zzz": 1, "queue_limit": 5, "order": {"params": {}, "name": "fifo"}, "placement": {"name": "dual_map"}}
    assert list(ordered(document)) == ["placement", "order", "queue_limit", "zzz"]
    assert list(ordered(document)["order"]) == ["name", "params"]


def test_completed_document_lists_its_defaults_and_an_invalid_one_is_unchanged() -> None:
    assert completed({})["placement"] == {"name": "least_cost", "params": {"beta": 8.0}}
    assert completed({"ttft_slo_s": -1}) == {"ttft_slo_s": -1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "$: is empty; write {} for the defaults"),
        ('{\n  "a": 1,\n}', "$: cannot be read at line 3, column 1: trailing comma in object"),
        ('{\n "a": NaN}', "$: cannot be read at line 2, column 7: invalid character"),
        ('{"a": 1, "a": 2}', "$.a: appears twice; keep one"),
        ("[", "$: ends too early; a bracket or quote is open"),
        ("[" * 3000, "$: is nested too deeply"),
        ('{"ttft_slo_s": 1e999}', "$: cannot be read: number out of range"),
        ('{"ttft_slo_s": ' + "1" * 5000 + "}", "$: cannot be read: integer value out of range"),
        ("é\ud800", "$: cannot be read at line 1, column 1: invalid character"),
        (" " * MAX_TEXT_BYTES + "{}", "$: is longer than 64 KiB"),
    ],
)
def test_invalid_text_is_reported_with_position_and_reason(text: str, problem: str) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        read_document(text)
    assert caught.value.problems == (problem,)


@unhurried
@given(st.text(max_size=60) | st.text(alphabet='{}[]",:0123456789.eE+- \n\\u', max_size=40))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        document = read_document(text)
    except InvalidPolicyError as error:
        assert error.problems
    else:
        assert same_value(document, msgspec.json.decode(text.encode()))
