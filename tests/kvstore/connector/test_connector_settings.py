"""Options of an engine: invalid ones are rejected at startup.

Messages between the gateway and a KV connector in `kv_transfer_params`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvstore.connector.connector_settings import settings_in
from kvstore.connector.engine_params import FIELD, KvOutcome, LoadInstruction, order_in, outcome_in, packed_keys
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


KEYS = (0, 1, (1 << 64) - 1)


def test_an_order_round_trips_through_a_json_body() -> None:
    order = LoadInstruction(keys=packed_keys(KEYS), load_blocks=2, holders=["127.0.0.1:8470"], tenant="acme")
    came = msgspec.json.decode(msgspec.json.encode({FIELD: order, "do_remote_decode": True}))
    assert order_in(came) == order
    assert order_in(came).routing_keys() == KEYS  # type: ignore[union-attr]


def test_an_outcome_round_trips_through_a_response() -> None:
    outcome = KvOutcome(loaded_blocks=3, loaded_bytes=4096, seconds=0.25, holder="127.0.0.1:8470", reason="missing")
    assert outcome_in(msgspec.json.decode(msgspec.json.encode({FIELD: outcome}))) == outcome


@pytest.mark.parametrize("params", [None, {}, {"do_remote_decode": True}, "no object", [1]])
def test_without_our_field_there_is_no_order_and_no_outcome(params: object) -> None:
    assert order_in(params) is None
    assert outcome_in(params) is None


@pytest.mark.parametrize(
    "wrong", [{"load_blocks": -1}, {"hint": "for ever"}, {"holders": ["a"] * 9}, {"pin_s": 1e9}, "text"]
)
def test_malformed_orders_are_rejected(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"kv_transfer_params\.headway"):
        order_in({FIELD: wrong})


@pytest.mark.parametrize("keys", ["AAAA", "not base64!"])
def test_malformed_keys_are_rejected(keys: str) -> None:
    with pytest.raises(ValueError, match=r"bytes|base64|padding|Only"):
        LoadInstruction(keys=keys).routing_keys()
