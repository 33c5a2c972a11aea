"""Options of an engine: invalid ones are rejected at startup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvstore.connector.connector_settings import settings_in
from kvstore.keys.keyring import Keyring

KEYRING = Keyring.of(b"a secret of the tests")


def test_options_are_read_and_have_defaults() -> None:
    read = settings_in({"node": "127.0.0.1:8470", "load_timeout_s": 3})
    assert (read.node, read.load_timeout_s, read.ask_node, read.tls) == ("127.0.0.1:8470", 3.0, False, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": "a:1"},
        {"load_timeout_s": 0},
        {"load_threads": 0},
        {"node": 8470},
        {"save_buffer_mib": -1},
        {"backend": "x"},
    ],
)
def test_invalid_options_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="kv_connector_extra_config"):
        settings_in(wrong)


def test_mooncake_is_queried_for_every_request_and_needs_its_master() -> None:
    read = settings_in({"backend": "mooncake", "node": "10.0.0.1:50051", "mooncake_segment_mib": 2})
    assert read.asks
    assert (read.store(b"", keeps=True).segment_bytes, read.store(b"", keeps=False).segment_bytes) == (2 << 20, 0)
    assert not settings_in({"node": "10.0.0.1:8470"}).asks
    with pytest.raises(ValueError, match="its master"):
        settings_in({"backend": "mooncake"})


def test_tls_options_are_complete_or_absent() -> None:
    files = {"tls_certificate": "a.pem", "tls_key": "b.pem", "tls_authority": "c.pem"}
    tls = settings_in(files).tls
    assert tls is not None
    assert tls.authority == Path("c.pem")
    with pytest.raises(ValueError, match="TLS needs all"):
        _ = settings_in({"tls_key": "b.pem"}).tls
