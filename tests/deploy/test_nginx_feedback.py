"""Reports derived from nginx's datagrams.

The nginx configuration generated from the fleet.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.nginx.feedback import Report, read
from deploy.nginx.upstreams import UpstreamPool, render, skipped

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


CHAT = UpstreamPool("chat", "m-8b", False, {f"e{number}": f"http://10.0.0.{number}:8000" for number in range(1, 5)})


def test_an_engine_has_an_upstream_with_two_backups() -> None:
    text = render([CHAT])
    assert (
        "upstream headway_engine_e4 { server 10.0.0.4:8000 max_fails=0; server 10.0.0.1:8000 backup; "
        "server 10.0.0.2:8000 backup; keepalive 32; keepalive_timeout 4s; }"
    ) in text
    assert "    e4 headway_engine_e4;\n" in text
    assert "default $headway_address;" in text


def test_ranks_of_one_process_back_up_only_other_addresses() -> None:
    here, there = "http://10.0.0.1:8000", "http://10.0.0.2:8000"
    text = render([UpstreamPool("chat", "m-8b", False, {"a0": here, "a1": here, "b0": there, "b1": there})])
    servers = "server 10.0.0.1:8000; server 10.0.0.2:8000;"
    assert f"upstream headway_pool_chat {{ {servers} keepalive 32; keepalive_timeout 4s; }}" in text
    assert "upstream headway_engine_a1 { server 10.0.0.1:8000 max_fails=0; server 10.0.0.2:8000 backup; k" in text


def test_a_model_fails_open_to_its_pool_unless_the_pool_is_salted() -> None:
    salted = UpstreamPool("private", "p-8b", True, {"p1": "http://10.0.1.1:8000"})
    text = render([salted, CHAT])
    assert '    "m-8b" headway_pool_chat;\n' in text
    assert '"p-8b"' not in text
    assert "headway_engine_p1" in text


def test_with_two_pools_of_a_model_the_first_by_name_is_the_fallback() -> None:
    other = UpstreamPool("another", "m-8b", False, {"x1": "http://10.0.2.1:8000"})
    assert '"m-8b" headway_pool_another;' in render([CHAT, other])
    assert render([CHAT, other]) == render([other, CHAT])


def test_a_fleet_without_engines_has_a_valid_configuration() -> None:
    text = render([UpstreamPool("empty", "m", False, {})])
    assert "upstream" not in text.replace("$headway_upstream", "").replace("# Written by", "")
    assert text.count("map $") == 2


@pytest.mark.parametrize("url", ["https://10.0.0.1:8000", "http://10.0.0.1", "http://e:8000/base", "http://a b:1"])
def test_an_address_that_nginx_cannot_use_is_logged_and_omitted(url: str) -> None:
    pool = UpstreamPool("chat", "m", False, {"bad": url, "good": "http://[fd00::1]:8000/"})
    assert skipped([pool]) == ["bad"]
    text = render([pool])
    assert "server [fd00::1]:8000;" in text
    assert "bad" not in text


@pytest.mark.parametrize("model", ['m"; evil', "m\\", "$host", "~.*", "a\nb"])
def test_a_model_name_is_never_interpreted_as_configuration(model: str) -> None:
    with pytest.raises(ValueError, match="cannot map"):
        render([UpstreamPool("chat", model, False, CHAT.engines)])
    with pytest.raises(ValueError, match="is not a slug"):
        render([UpstreamPool("chat {", "m", False, CHAT.engines)])


def test_an_engine_id_is_never_interpreted_as_configuration() -> None:
    assert "evil" not in render([UpstreamPool("chat", "m", False, {"e; evil": "http://10.0.0.1:8000"})])
