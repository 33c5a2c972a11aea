from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.workloads.trace import TraceError, TraceRow, iterate_trace, read_trace, write_trace

_ROWS = st.lists(
    st.builds(
        TraceRow,
        timestamp=st.integers(0, 10**7),
        input_length=st.integers(1, 200_000),
        output_length=st.integers(0, 4000),
        hash_ids=st.lists(st.integers(-(2**63), 2**64 - 1), max_size=8).map(tuple),
        session_id=st.none() | st.text(max_size=8) | st.integers(0, 99),
        tenant=st.text(max_size=8),
        priority=st.integers(-9, 9),
        cache_hint=st.none() | st.booleans() | st.text(max_size=8),
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
@given(rows=_ROWS)
def test_a_trace_round_trips(tmp_path_factory: pytest.TempPathFactory, name: str, rows: list[TraceRow]) -> None:
    path = tmp_path_factory.mktemp("trace") / name
    assert write_trace(path, rows) == len(rows)
    assert list(iterate_trace(path)) == rows


def test_rows_in_mooncakes_format_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.jsonl"
    path.write_text('{"timestamp": 27482, "input_length": 600, "output_length": 52, "hash_ids": [46, 47]}\n\n')
    (row,) = read_trace(path)
    assert (row.timestamp, row.input_length, row.output_length, row.hash_ids) == (27482, 600, 52, (46, 47))


def test_a_written_row_has_only_mooncakes_fields(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write_trace(path, [TraceRow(timestamp=0, input_length=3, output_length=1, hash_ids=(5,))])
    assert path.read_text() == '{"timestamp":0,"input_length":3,"output_length":1,"hash_ids":[5]}\n'


def test_rows_are_read_in_order_of_their_timestamps_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    write_trace(path, [TraceRow(t, 1, 1, ()) for t in (5, 3, 9)])
    assert [row.timestamp for row in read_trace(path)] == [3, 5, 9]
    assert [row.timestamp for row in read_trace(path, 2)] == [3, 5]


_GOOD = '{"timestamp": 1, "input_length": 2, "output_length": 3, "hash_ids": []}\n'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nonsense", "malformed"),
        ('{"timestamp": 1}', "input_length"),
        (_GOOD.replace("2", "0").strip(), "input_length"),
        (_GOOD.replace("1", "-1").strip(), "timestamp"),
        (_GOOD.replace("[]", '["a"]').strip(), "hash_ids"),
        (_GOOD.replace("[]", "[18446744073709551616]").strip(), "hash_ids"),
        ("[" * 5000, "line|depth|object"),
    ],
)
def test_an_invalid_line_is_reported_by_its_number(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "wrong.jsonl"
    path.write_text(_GOOD + line + "\n")
    with pytest.raises(TraceError, match=rf"wrong\.jsonl:2: .*({reason})"):
        read_trace(path)


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_trace_is_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError, match="no rows"):
        read_trace(path)


def test_a_missing_or_damaged_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        read_trace(tmp_path / "none.jsonl")
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(_GOOD.encode() * 1000)[:40])
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(path)
    path.write_bytes(b"not gzip")
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(path)
