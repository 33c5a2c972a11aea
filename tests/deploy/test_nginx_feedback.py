"""Reports derived from nginx's datagrams."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.nginx.feedback import Report, read

ID = "01a20632-ea65-7441-b781-201c172b24b9"
USUAL = {
    "headway": "decided", "decision": ID, "status": "200", "whole": "1", "address": "10.0.0.1:8000",
    "upstream": "10.0.0.1:8000", "cached_tokens": "64", "output_tokens": "2", "prompt_tokens": "",
}  # fmt: skip


def datagram(**changes: Any) -> bytes:
    return b"<190>Nov 23 02:00:00 nginx: " + json.dumps({**USUAL, **changes}, separators=(",", ":")).encode()


def test_a_whole_response_is_reported_as_completed_with_the_engines_usage() -> None:
    assert read(datagram()) == ("decided", Report(ID, "complete", {"cached_tokens": 64, "output_tokens": 2}))


@pytest.mark.parametrize(
    ("changes", "verb"),
    [
        ({"status": "500"}, "fail"),
        ({"status": "502", "whole": "", "upstream": ""}, "fail"),
        ({"upstream": "10.0.0.1:8000, 10.0.0.2:8000"}, "fail"),
        ({"status": "400"}, "cancel"),
        ({"status": "499", "whole": ""}, "cancel"),
        ({"whole": ""}, "cancel"),
    ],
)
def test_only_the_engines_own_failures_are_reported_as_failed(changes: dict[str, str], verb: str) -> None:
    assert read(datagram(**changes)) == ("decided", Report(ID, verb))


def test_a_first_token_is_reported_by_the_script() -> None:
    line = f"<190>Nov 23 02:00:00 nginx: 2026/11/23 [info] 7#7: *1 js: headway first_token {ID}, client: x".encode()
    assert read(line) == ("", Report(ID, "first_token"))


def test_requests_without_a_decision_are_counted_and_not_reported() -> None:
    assert read(datagram(headway="failed_open_down", decision="")) == ("failed_open_down", None)


FORGED = [
    {"decision": "../../../api/v1/route?"}, {"decision": None}, {"decision": ID + "/x"}, {"status": None},
    {"upstream": 7}, {"cached_tokens": [1]}, {"cached_tokens": "9" * 5000}, {"headway": ["decided"]},
    {"nested": [[[[]]]]},
]  # fmt: skip
DEEP = b'{"headway":' + b"[" * 60_000


@pytest.mark.parametrize("forged", [datagram(**item) for item in FORGED] + [DEEP])
def test_datagrams_of_other_processes_are_not_reported(forged: bytes) -> None:
    assert read(forged)[1] is None


@pytest.mark.parametrize("noise", [b"", b"<190>nginx: client closed", b'{"headway"', datagram(status="x")])
def test_noise_is_ignored(noise: bytes) -> None:
    assert read(noise) == ("", None)
