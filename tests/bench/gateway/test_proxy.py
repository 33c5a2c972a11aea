"""bench.gateway.proxy computes the added latency and parses responses."""

from __future__ import annotations

import threading

import pytest

from bench.gateway.proxy import added
from bench.gateway.proxy_run.nginx_folder import nginx_folder
from bench.gateway.proxy_run.round_trips import p50_us, requests
from tests.gateway.ports import listen


def test_added_latency_is_relative_to_nginx_and_the_peers_to_the_engine() -> None:
    p50 = {"engine": 20.0, "nginx": 50.0, "nginx_decided": 200.0, "sglang_router": 70.0}
    figures = {f"{name}_{size}kb_us{of}": us for name, us in p50.items() for size in (2, 48) for of in ("", "_median")}
    added_us = added(figures)
    assert (added_us["added_2kb_us"], added_us["peer_added_2kb_us"], added_us["added_2kb_over_peer"]) == (
        150.0,
        50.0,
        3.0,
    )
    assert added_us["added_48kb_over_peer_median"] == 3.0


def test_requests_have_the_given_size_and_share_prefixes() -> None:
    asked = requests(2)
    assert all(1900 < len(item.partition(b"\r\n\r\n")[2]) < 2300 for item in asked)
    assert len({item[:900] for item in asked}) == 16


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", None),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", None),
        (b"HTTP/1.1 502 X\r\ncontent-length: 0\r\n\r\n", "answered 502"),
        (b"HTTP/1.1 429 X\r\ncontent-length: 0\r\n\r\n", "rejected most"),
        (b"", "closed"),
    ],
)
def test_only_responses_of_engines_are_timed(answer: bytes, error: str | None) -> None:
    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while answer and connection.recv(1 << 20):
                connection.sendall(answer)

    with listen() as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        port = listener.getsockname()[1]
        if error is None:
            assert p50_us(port, [b"x"] * 3) > 0
        else:
            with pytest.raises((RuntimeError, ConnectionError), match=f"{error}|reset"):
                p50_us(port, [b"x"] * 3)
        serving.join(60)


def test_configuration_change_without_effect_raises(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(ValueError, match="has no"):
        nginx_folder(tmp_path_factory.mktemp("nginx"), 1, "127.0.0.1:2", {"no such line": ""})
