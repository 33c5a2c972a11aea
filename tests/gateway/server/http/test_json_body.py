"""Malformed bodies of every kind get a fast 4xx that names the fault without quoting them."""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.server.http.json_body import MAX_DEPTH, BadBodyError, decode_object, lax_flag, lax_int, reject_nul, typed
from tests.gateway.loop_time import turn_limit_s

MIB = 1 << 20

BAD = {
    "empty": (b"", "empty_body"),
    "not json": (b"{", "not_json"),
    "trailing": (b"{} {}", "not_json"),
    "a list": (b"[1]", "not_an_object"),
    "5,000 brackets": (b"[" * 5000, "too_deep"),
    "5,000 objects": (b'{"a":' * 5000, "too_deep"),
    "65 levels": (b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", "too_deep"),
    "a MiB of brackets": (b"[" * MIB, "too_complex"),
    "350,000 lists": (b'{"a":[' + b"[]," * 349_000 + b"[]]}", "too_complex"),
    "20,000 keys": (b"{" + b",".join(b'"k%d":1' % n for n in range(20_000)) + b"}", "too_many_fields"),
    "100,000 keys": (b"{" + b",".join(b'"k%d":1' % n for n in range(100_000)) + b"}", "too_complex"),
    "a key of 1 MB": (b'{"' + b"k" * 1_000_000 + b'":1}', "field_name_too_long"),
    "5,000 digits": (b'{"a":' + b"9" * 5000 + b"}", "bad_number"),
    "1e999": (b'{"a":1e999}', "bad_number"),
    "NaN": (b'{"a":NaN}', "not_json"),
    "Infinity": (b'{"a":-Infinity}', "not_json"),
    "high surrogate": (b'{"a":"\\ud800"}', "lone_surrogate"),
    "low surrogate": (b'{"a":"\\udc00 x"}', "lone_surrogate"),
    "raw surrogate": (b'{"a":"\xed\xa0\x80"}', "bad_utf8"),
    "bad UTF-8": (b'{"a":"\xff"}', "bad_utf8"),
    "raw NUL": (b'{"a":"\x00"}', "not_json"),
    "BOM": (b"\xef\xbb\xbf{}", "byte_order_mark"),
    "UTF-16": ('{"a":1}'.encode("utf-16"), "not_json"),
}


@pytest.mark.parametrize("name", BAD)
def test_the_error_names_the_fault_in_a_body(name: str) -> None:
    body, cause = BAD[name]
    with pytest.raises(BadBodyError) as caught:
        decode_object(body)
    assert caught.value.cause == cause
    assert caught.value.status == 400


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_body_is_rejected_quickly(name: str) -> None:
    best_s = min(_time_of(BAD[name][0]) for _ in range(5))
    # In one go; the turns of the event loop that long bodies take are in test_loop_time.py.
    assert best_s < 15 * turn_limit_s()


def _time_of(body: bytes) -> float:
    # Of this thread: others from an earlier test may run.
    before = time.thread_time()
    with pytest.raises(BadBodyError):
        decode_object(body)
    return time.thread_time() - before


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a":1,"a":2}', {"a": 2}),
        (b'{"a":"\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b'{"a":"\\\\u0000"}', {"a": "\\u0000"}),
        (b'{"a":"' + b'{[\\"' * 1000 + b'"}', {"a": '{["' * 1000}),
        (b'{"a":"' + b"\\\\" * 9 + b'", "b":[' + b"[]," * 70 + b"[]]}", {"a": "\\" * 9, "b": [[]] * 71}),
    ],
)
def test_unusual_but_valid_bodies_are_read(body: bytes, value: object) -> None:
    assert decode_object(body) == value


FLAGS: list[tuple[object, bool | None]] = [
    *((value, True) for value in (True, 1, 1.0, "1", "on", "ON", "t", "true", "True", "y", "yes")),
    *((value, False) for value in (False, 0, 0.0, "0", "off", "f", "false", "FALSE", "n", "no")),
    *((value, None) for value in (None, 2, -1, 0.5, float("nan"), "", " true", "maybe", "01", "1.0")),
]
WHOLE: list[tuple[object, int | None]] = [
    *((value, 16) for value in (16, 16.0, "16", " 16\n", "+16", "016", "16.0", "16.000", "1_6")),
    *((True, 1), (False, 0), (-3.0, -3), ("-3", -3), ("0", 0), (2**53 + 1, 2**53 + 1)),
    *((value, None) for value in (None, 16.5, float("inf"), float("nan"), "", "16.5", "1e1", "0x10", "_16", "many")),
    *((value, None) for value in ("1__6", "١٦", "- 3", "--3", "16.0.0", "16.", ".0")),
]


@pytest.mark.parametrize(("value", "flag"), FLAGS)
def test_a_flag_is_parsed_as_engines_parse_it(value: object, flag: bool | None) -> None:
    assert lax_flag(value) is flag
    assert _in_pydantic(bool, value) is flag


@pytest.mark.parametrize(("value", "number"), WHOLE)
def test_an_integer_is_parsed_as_engines_parse_it(value: object, number: int | None) -> None:
    assert (lax_int(value), type(lax_int(value))) == (number, type(number))
    assert _in_pydantic(int, value) == number


@pytest.mark.parametrize("value", [[], {}, [1], {"a": 1}])
def test_a_non_scalar_is_neither_flag_nor_number(value: object) -> None:
    assert (lax_flag(value), lax_int(value)) == (None, None)


def _in_pydantic(kind: type, value: object) -> Any:
    """Return the value as parsed by Pydantic, the library that engines use."""
    try:
        return pydantic.TypeAdapter(kind).validate_python(value)
    except pydantic.ValidationError:
        return None


@pytest.mark.parametrize("body", [b'{"a":"x\\u0000"}', b'{"a":"\\\\\\u0000"}'])
def test_a_nul_is_detected_in_fields_that_forbid_it(body: bytes) -> None:
    with pytest.raises(BadBodyError):
        reject_nul(body)
    reject_nul(b'{"a":"\\\\u0000"}')
    assert "\0" in decode_object(body)["a"]


def test_the_documented_depth_is_allowed() -> None:
    inner = MAX_DEPTH - 1
    body = b'{"a":' + b"[" * inner + b"]" * inner + b',"b":[],"c":[]}'
    assert "a" in decode_object(body)


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_value_or_a_4xx(body: bytes) -> None:
    try:
        assert isinstance(decode_object(body), dict)
    except BadBodyError as error:
        assert 400 <= error.status < 500


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
        max_leaves=60,
    )
)
def test_an_encoded_value_round_trips(value: object) -> None:
    assert decode_object(msgspec.json.encode({"value": value})) == {"value": value}


class Wanted(msgspec.Struct):
    """A struct with a bound."""

    count: Annotated[int, msgspec.Meta(ge=0)]


def test_the_error_names_an_invalid_field_without_its_value() -> None:
    with pytest.raises(BadBodyError) as caught:
        typed({"count": "CANARY"}, Wanted)
    assert caught.value.param == "count"
    assert "CANARY" not in caught.value.message
