"""Uploads report every error with its line, within limits."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pytest

from controlplane.request_log.recordings import upload
from controlplane.request_log.recordings.upload import MAX_PROBLEMS, BadTraceError, checked_rows


def line(**fields: Any) -> bytes:
    return json.dumps({"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1], **fields}).encode()


def rejected(data: bytes) -> list[tuple[str, str]]:
    with pytest.raises(BadTraceError) as caught:
        checked_rows(io.BytesIO(data))
    return [(problem.path, problem.message) for problem in caught.value.problems]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_trace_is_read_compressed_or_not(pack: Any) -> None:
    rows = list(checked_rows(io.BytesIO(pack(line() + b"\n\n" + line(timestamp=5, prompt="not read") + b"\n"))))
    assert [row.timestamp for row in rows] == [0, 5]
    assert "not read" not in repr(rows)


def test_every_invalid_line_is_named() -> None:
    good = line()
    data = b"\n".join([good, b"{", line(input_length=0), good, line(hash_ids=[2**64]), line(outcome="hello"), b"[]"])
    problems = rejected(data)
    assert [path for path, _ in problems] == ["line 2", "line 3", "line 5", "line 6", "line 7"]
    assert "$.input_length" in problems[1][1]
    assert "64 bits" in problems[2][1]
    assert "completed" in problems[3][1]


def test_problems_are_limited_and_counted() -> None:
    with pytest.raises(BadTraceError, match="150 lines unreadable; the first 100") as caught:
        checked_rows(io.BytesIO(b"x\n" * 150))
    assert len(caught.value.problems) == MAX_PROBLEMS


@pytest.mark.parametrize("data", [b"", b"\n\n", gzip.compress(b"", mtime=0)], ids=["empty", "lines", "packed"])
def test_empty_upload_is_rejected(data: bytes) -> None:
    assert "no request" in rejected(data)[0][1]


def test_broken_gzip_is_reported() -> None:
    packed = gzip.compress((line() + b"\n") * 100)
    assert "decompressed" in rejected(packed[:-20])[0][1]


def test_limits_are_enforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_ROWS", 3)
    assert "more than 3 requests" in rejected((line() + b"\n") * 4)[0][1]
    monkeypatch.setattr(upload, "MAX_PLAIN_BYTES", 100)
    assert "Decompressed" in rejected(gzip.compress((line() + b"\n") * 3))[0][1]
    monkeypatch.setattr(upload, "MAX_UPLOAD_BYTES", 50)
    assert "over 0 MiB" in rejected(line() * 3)[0][1]


def test_too_long_line_is_named_and_later_lines_are_still_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_LINE_BYTES", 100)
    data = b"\n".join([line(), line(tenant="x" * 500), b"{"])
    assert [path for path, _ in rejected(data)] == ["line 2", "line 3"]


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of decompressed pieces."""
    sizes: list[int] = []

    class Counting(gzip.GzipFile):
        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            sizes.append(len(data))
            return data

    monkeypatch.setattr(upload.gzip, "GzipFile", Counting)
    return sizes


@pytest.mark.parametrize("blank", [b"\n", b" \r\n", b"x\n"], ids=["blank", "spaces", "wrong"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_every_line_counts_whatever_its_content(
    monkeypatch: pytest.MonkeyPatch, unpacked: list[int], pack: Any, blank: bytes
) -> None:
    monkeypatch.setattr(upload, "MAX_LINES", 1000)
    assert not [problem for problem in rejected(pack(blank * 1000)) if "more than" in problem[1]]
    unpacked.clear()
    with pytest.raises(BadTraceError) as caught:
        checked_rows(io.BytesIO(pack(blank * (4 << 20))))
    assert str(caught.value).startswith("1,001 lines" if blank == b"x\n" else "1 line")
    if blank != b"x\n":
        assert "more than 1,000 lines" in caught.value.problems[-1].message
    assert sum(unpacked) < 1 << 20, "it goes on unpacking behind the first limit"


def test_endless_line_is_decompressed_only_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch, unpacked: list[int]
) -> None:
    monkeypatch.setattr(upload, "MAX_PLAIN_BYTES", 4 << 20)
    assert "Decompressed it is over 4 MiB" in rejected(gzip.compress(b"a" * (64 << 20)))[-1][1]
    assert sum(unpacked) < 6 << 20


def test_empty_gzip_members_are_counted(unpacked: list[int]) -> None:
    many = gzip.compress(b"") * (upload.MAX_MEMBERS + 1) + gzip.compress(line())
    assert "too many gzip members" in rejected(many)[0][1]
    assert not unpacked
    some = gzip.compress(line() + b"\n") * 50
    assert len(list(checked_rows(io.BytesIO(some)))) == 50
