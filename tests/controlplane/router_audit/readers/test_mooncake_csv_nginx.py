"""Mooncake's format, CSV, and nginx's log. All samples are constructed."""

from __future__ import annotations

import json

import pytest

from controlplane.router_audit.readers.csv_log import CsvLog
from controlplane.router_audit.readers.mooncake_log import mooncake_request
from controlplane.router_audit.readers.nginx_log import nginx_request
from planning.router_audit.logged_request import LoggedRequest, OtherLineError, UnusableLineError


def test_a_row_of_a_published_trace_names_no_engine() -> None:
    row = b'{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}'
    assert mooncake_request(row) == LoggedRequest(
        arrived_s=27.482, prompt_tokens=6955, output_tokens=52, blocks=(46, 47, 2353), block_source="hashes"
    )


def test_a_row_with_engine_and_outcome_is_read_whole() -> None:
    request = mooncake_request(
        b'{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [], "engine": "gpu-1", "ttft_s": 0.3,'
        b' "cached_tokens": 512, "session_id": 7, "outcome": "completed"}'
    )
    assert (request.engine, request.ttft_s, request.cached_tokens, request.session) == ("gpu-1", 0.3, 512, "7")
    assert (request.blocks, request.block_source) == ((), "")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"timestamp": 1}', "a row needs timestamp, input_length"),
        (b'{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [99999999999999999999]}', "64 bits|row"),
    ],
)
def test_a_bad_row_states_what_it_needs(line: bytes, why: str) -> None:
    with pytest.raises(UnusableLineError, match=why):
        mooncake_request(line)


def test_csv_is_read_by_its_header() -> None:
    read = CsvLog()
    with pytest.raises(OtherLineError, match="header"):
        read(b"Time,engine,prompt_tokens,ttft,block_hashes,block_tokens,prompt\r\n")
    assert read(b"2026-11-29T10:00:00Z,http://A:8000/v1,1100,-,1 2 0x3 4,256,\r\n") == LoggedRequest(
        arrived_s=1795946400.0, engine="a:8000", prompt_tokens=1100, blocks=(2, 4), block_source="hashes"
    )
    by_prompt = read(b'12.5,a:8000,,0.25,,,"' + b"word " * 1000 + b'"\n')
    assert (by_prompt.prompt_tokens, by_prompt.block_source, len(by_prompt.blocks)) == (1250, "prompt", 2)
    assert by_prompt.ttft_s == 0.25
    with pytest.raises(UnusableLineError, match="2 cells instead of 7"):
        read(b"1,2\n")
    with pytest.raises(UnusableLineError, match="no time"):
        read(b"soon,a,1,1,,,\n")
    with pytest.raises(UnusableLineError, match="separate them with spaces"):
        read(b"1,a,1,1,x;y,,\n")


def test_csv_without_a_header_lists_the_known_columns() -> None:
    with pytest.raises(UnusableLineError, match="known columns are request_id, time"):
        CsvLog()(b"1,2,3\n")


NGINX = {
    "time": "1795203730.500", "request_time": "2.500", "uri": "/v1/chat/completions", "status": "200",
    "upstream": "10.0.0.1:8000, 10.0.0.2:8000", "request_length": "8400", "session": "s-1", "cached_tokens": "512",
    "request_id": "r-1",
}  # fmt: skip


def test_an_nginx_line_is_read_as_for_observe_only_pools() -> None:
    assert nginx_request(json.dumps(NGINX).encode()) == LoggedRequest(
        request_id="r-1", arrived_s=1795203728.0, engine="10.0.0.2:8000", prompt_tokens=2000, estimated=True,
        cached_tokens=512, total_s=2.5, session="s-1", outcome="completed",
    )  # fmt: skip
    with pytest.raises(OtherLineError, match="another path"):
        nginx_request(json.dumps({**NGINX, "uri": "/health"}).encode())
    with pytest.raises(UnusableLineError, match=r"log the fields that docs/audit-router\.md lists"):
        nginx_request(json.dumps({**NGINX, "upstream": "-"}).encode())
    with pytest.raises(UnusableLineError, match="choose the --format"):
        nginx_request(b"10.0.0.9 - - GET /")
