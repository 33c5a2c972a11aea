"""Messages between the gateway and a KV connector in `kv_transfer_params`."""

from __future__ import annotations

import msgspec
import pytest

from kvstore.connector.engine_params import FIELD, KvOutcome, LoadInstruction, order_in, outcome_in, packed_keys

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
