"""A pasted list is parsed line by line. Every line is kept, and none prevents the parsing of others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.engine_paste import (
    MAX_BYTES,
    MAX_LINE_CHARS,
    MAX_LINES,
    UnreadablePasteError,
    decode_upload,
    header_of,
    parse_lines,
    split_lines,
)

NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,20}", fullmatch=True)
PORTS = st.integers(1, 65_535)
EVERYTHING = {
    "name": "e-1",
    "url": "http://10.0.0.1:8000",
    "pool": "chat",
    "kv_events_endpoint": "tcp://10.0.0.1:5557",
    "kv_replay_endpoint": "tcp://10.0.0.1:5558",
    "speed": 1.5,
}


def plain(name: str, url: str) -> dict[str, str]:
    return {"name": name, "url": url}


def read(text: str) -> list[Any]:
    lines = parse_lines(split_lines(text))
    assert all(line.fine for line in lines), [line.problems for line in lines]
    return [line.engine for line in lines]


@pytest.mark.parametrize(
    "text",
    [
        "e-1,chat,http://10.0.0.1:8000,tcp://10.0.0.1:5557,tcp://10.0.0.1:5558,1.5",
        "http://10.0.0.1:8000; e-1; chat; 1.5; tcp://10.0.0.1:5557; tcp://10.0.0.1:5558",
        "e-1\tchat\thttp://10.0.0.1:8000\ttcp://10.0.0.1:5557\ttcp://10.0.0.1:5558\t1.5",
        "  e-1 chat http://10.0.0.1:8000 tcp://10.0.0.1:5557 tcp://10.0.0.1:5558 1.5  ",
        '"e-1","chat","http://10.0.0.1:8000","tcp://10.0.0.1:5557","tcp://10.0.0.1:5558","1.5"',
        "url,speed,name,pool,kv_replay,kv_events\n"
        "http://10.0.0.1:8000,1.5,e-1,chat,tcp://10.0.0.1:5558,tcp://10.0.0.1:5557",
    ],
)
def test_columns_are_recognized_in_any_order_and_with_any_separator(text: str) -> None:
    assert read(text) == [EVERYTHING]


def test_bare_address_is_enough() -> None:
    assert read("http://10.0.0.1:8000") == [plain("10-0-0-1-8000", "http://10.0.0.1:8000")]


def test_lines_may_be_separated_differently() -> None:
    assert [engine["name"] for engine in read("a, http://10.0.0.1\nb http://10.0.0.2\n\n# no\nc;http://10.0.0.3")] == [
        "a",
        "b",
        "c",
    ]


def test_header_allows_empty_cells_and_counts_as_a_line() -> None:
    lines = parse_lines(split_lines("name,pool,url,events\na,,http://10.0.0.1,\n"))
    assert [(line.number, line.engine) for line in lines] == [(2, plain("a", "http://10.0.0.1"))]
    assert header_of(["name,url", "a,http://10.0.0.1"]) == "name,url"
    assert header_of(["a,http://10.0.0.1"]) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("e-1", "No URL"),
        ("http://10.0.0.1 a b c", "“c” is one field too many"),
        ("http://10.0.0.1 tcp://h:1 tcp://h:2 tcp://h:3", "one field too many"),
        ("http://10.0.0.1 -1", "Relative speed “-1”: Ensure this value is greater than or equal to 0.001."),
        ("http://10.0.0.1 a.b", "Name “a.b”: Use letters, digits, - and _."),
        ("name,url\na,http://10.0.0.1,x", "3 fields, but the first line names 2 columns"),
        ("name,url,speed\na,http://10.0.0.1,fast", "Relative speed “fast”: Enter a number."),
        ("x" * (MAX_LINE_CHARS + 1), "more than 1,000 characters"),
    ],
)
def test_invalid_line_reports_its_problem(text: str, problem: str) -> None:
    line = parse_lines(split_lines(text))[-1]
    assert not line.fine
    assert any(problem in item for item in line.problems)


def test_duplicate_names_the_earlier_line() -> None:
    lines = parse_lines(
        split_lines("a http://10.0.0.1\nb http://10.0.0.1/\na http://10.0.0.2\na other http://10.0.0.3")
    )
    assert [line.problems for line in lines] == [
        (),
        ("Line 1 has the same URL.",),
        ("Line 1 has the same name.",),
        (),
    ]


def test_too_long_list_is_rejected_as_a_whole() -> None:
    with pytest.raises(UnreadablePasteError, match="over the limit of 500"):
        split_lines("x\n" * (MAX_LINES + 1))
    assert len(split_lines("x\n" * MAX_LINES)) == MAX_LINES


@pytest.mark.parametrize(("data", "why"), [(b"\xff\xfe\x00", "not UTF-8"), (b"x" * (MAX_BYTES + 1), "256 KiB")])
def test_unreadable_file_is_reported_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(UnreadablePasteError, match=why):
        decode_upload(data)


def test_byte_order_mark_is_not_part_of_the_first_name() -> None:
    assert read(decode_upload(b"\xef\xbb\xbfname,url\na,http://10.0.0.1\n")) == [plain("a", "http://10.0.0.1")]


@given(st.text(max_size=300))
def test_any_text_is_parsed_and_keeps_every_line(text: str) -> None:
    texts = split_lines(text)
    lines = parse_lines(texts)
    assert [line.text for line in lines] == texts[1 if header_of(texts) else 0 :]
    assert all(line.fine or line.problems for line in lines)


@given(
    st.lists(st.tuples(NAMES, PORTS), min_size=1, max_size=20, unique_by=(lambda item: item[0], lambda item: item[1])),
    st.sampled_from([",", ";", "\t", " ", ", "]),
    st.booleans(),
)
def test_formatted_engines_are_parsed_unchanged(engines: list[tuple[str, int]], sign: str, url_first: bool) -> None:
    parts = [(name, f"http://10.0.0.1:{port}") for name, port in engines]
    text = "\n".join(sign.join(reversed(part) if url_first else part) for part in parts)
    assert read(text) == [plain(name, url) for name, url in parts]


def test_role_is_recognized_in_any_column() -> None:
    first, second = parse_lines(["e-1, http://10.0.3.7:8000, prefill", "decode http://10.0.3.8:8000 e-2"])
    assert [line.engine["role"] for line in (first, second) if line.engine] == ["prefill", "decode"]
    assert (first.fine, second.fine) == (True, True)


def test_role_column_is_validated() -> None:
    texts = [
        "name,url,role",
        "a,http://10.0.3.7:8000,",
        "b,http://10.0.3.8:8000,PREFILL",
        "c,http://10.0.3.9:8000,both",
    ]
    default, prefill, wrong = parse_lines(texts)
    assert [line.engine.get("role") for line in (default, prefill) if line.engine] == [None, "prefill"]
    assert wrong.problems == ("Role “both”: Select a valid choice. both is not one of the available choices.",)
