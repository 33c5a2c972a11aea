"""Files, directories, and damaged files of a log."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from controlplane.router_audit.log_files import FORMATS, UnreadableLogError, read_log
from planning.router_audit.logged_request import RequestLog

ROW = b'{"timestamp": %d, "input_length": 9, "output_length": 1, "hash_ids": []}\n'


def names(log: RequestLog) -> list[str]:
    return [request.request_id for request in log.requests()]


def test_a_directory_is_read_in_order_of_names_and_gzip_by_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "trace.000002.jsonl").write_bytes(ROW % 2000)
    (tmp_path / "trace.000001.jsonl.gz").write_bytes(gzip.compress(ROW % 1000 + b"\nbroken\n" + ROW % 1500))
    log = RequestLog()
    read_log(log, tmp_path, "mooncake")
    assert names(log) == ["trace.000001.jsonl.gz:1", "trace.000001.jsonl.gz:4", "trace.000002.jsonl:1"]
    assert (log.lines, log.unusable, log.problems[0][0]) == (4, 1, "trace.000001.jsonl.gz:3")


def test_files_with_one_name_keep_their_requests_apart(tmp_path: Path) -> None:
    log = RequestLog()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "log").write_bytes(ROW % 1)
        read_log(log, tmp_path / folder, "mooncake")
    assert names(log) == ["log:1", f"{tmp_path}/b/log:1"]


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08 cut", None], ids=["damaged", "missing"])
def test_an_unreadable_file_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnreadableLogError, match=r"log\.gz"):
        read_log(RequestLog(), path, "mooncake")
    with pytest.raises(UnreadableLogError, match="no files"):
        (tmp_path / "empty").mkdir()
        read_log(RequestLog(), tmp_path / "empty", "mooncake")


@pytest.mark.parametrize("column", ["prompt_tokens", "output_tokens", "cached_tokens", "ttft", "total"])
def test_figures_that_no_simulation_could_end_with_are_unusable(column: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"time,session,{column}\n1,s,100000000\n")
    log = RequestLog()
    read_log(log, tmp_path / "log", "csv")
    assert names(log) == []
    assert "more than" in log.problems[0][1]
    assert "check its unit" in log.problems[0][1]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("line", [b"\xff\xfe", b"[1, 2]", b"{}", b"null", b"{" * 5000, b'{"a": 1e999}', b"\x00"])
def test_no_line_ends_the_reading(name: str, line: bytes, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(line + b"\n" + line + b"\n")
    log = RequestLog()
    read_log(log, tmp_path / "log", name)
    assert log.unusable + sum(log.others.values()) == log.lines == 2
