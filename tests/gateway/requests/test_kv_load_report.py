import json
from typing import Any

import msgspec
import pytest

from gateway.requests.kv_load_report import take_from_params, take_outcome, with_order
from kvstore.connector.engine_params import KvOutcome, LoadInstruction, order_in, packed_keys

ORDER = LoadInstruction(keys=packed_keys([1, 2]), load_blocks=2, holders=["127.0.0.1:1"], tenant="a", hint="ephemeral")
SAID = {"loaded_blocks": 2, "loaded_bytes": 10, "seconds": 0.5, "holder": "127.0.0.1:1"}
OUTCOME = KvOutcome(loaded_blocks=2, loaded_bytes=10, seconds=0.5, holder="127.0.0.1:1")


@pytest.mark.parametrize("body", [b'{"model":"m","prompt":"{}"}', b' \n{ "model": "m" }', b'{"a":{"b":1}}'])
def test_a_load_order_is_added_to_an_otherwise_unchanged_body(body: bytes) -> None:
    sent = with_order(body, ORDER)
    fields = json.loads(sent)
    assert order_in(fields.pop("kv_transfer_params")) == ORDER
    assert fields == json.loads(body)
    assert sent.endswith(body[body.index(b"{") + 1 :])


@pytest.mark.parametrize(
    ("params", "left"),
    [
        ({"headway": SAID}, None),
        ({"headway": SAID, "remote_url": "x"}, {"remote_url": "x"}),
    ],
)
def test_the_connectors_report_is_removed_from_the_response(params: dict[str, Any], left: Any) -> None:
    answer = {"id": "x", "kv_transfer_params": params, "usage": {"prompt_tokens": 3}}
    body, outcome = take_outcome(json.dumps(answer).encode())
    assert json.loads(body) == {**answer, "kv_transfer_params": left}
    assert outcome == OUTCOME


@pytest.mark.parametrize("said", [{"loaded_blocks": -1}, {"loaded_blocks": "many"}, 7, None, [], {"seconds": 1e999}])
def test_a_malformed_report_is_removed_and_ignored(said: Any) -> None:
    answer = {"id": "x", "kv_transfer_params": {"headway": said}}
    body, outcome = take_outcome(msgspec.json.encode(answer))
    assert "headway" not in body.decode()
    assert outcome is None


@pytest.mark.parametrize(
    "answer",
    [
        b'{"id":"x"}',
        b'{"kv_transfer_params": null}',
        b'{"kv_transfer_params": {"remote_url": "x"}}',
        b'{"choices":[{"text":"\\"kv_transfer_params\\": 3"}]}',
        b'"kv_transfer_params" is no JSON',
        b'{"kv_transfer_params": [1]}',
        b"[DONE]",
    ],
)
def test_responses_without_a_report_are_forwarded_byte_for_byte(answer: bytes) -> None:
    body, outcome = take_outcome(answer)
    assert body is answer
    assert outcome is None


def test_other_params_of_a_prefill_leg_are_forwarded() -> None:
    params = msgspec.Raw(b'{"remote_url": "x", "headway": {"loaded_blocks": 2}}')
    left, outcome = take_from_params(params)
    assert (json.loads(bytes(left)), outcome) == ({"remote_url": "x"}, KvOutcome(loaded_blocks=2))
    untouched = msgspec.Raw(b'{"remote_url": "x"}')
    assert take_from_params(untouched) == (untouched, None)
    assert take_from_params(msgspec.Raw(b"garbage"))[1] is None
