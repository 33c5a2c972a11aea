"""The engine gets the client's request without the fields that belong to Headway."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.proxy.forwarded_request import ForwardedRequest, forwarded_request
from gateway.requests.formats.endpoints import BY_PATH, CHAT
from gateway.requests.formats.owned_fields import REMOVED
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, served

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "é"}], "temperature": 0.1}


def _forward(body: dict[str, Any], *, salt: str | None = None, **headers: bytes) -> ForwardedRequest:
    sent = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    original = json.dumps(body).encode()
    return forwarded_request(BY_PATH[CHAT], original, body, sent, request_id="id-1", salt=salt)


def test_an_unchanged_body_is_forwarded_byte_for_byte() -> None:
    assert _forward(BODY).body == json.dumps(BODY).encode()


@pytest.mark.parametrize("field", sorted(REMOVED))
def test_only_our_fields_are_removed(field: str) -> None:
    assert json.loads(_forward({**BODY, field: "theirs"}).body) == BODY


def test_a_salt_replaces_the_clients_salt() -> None:
    assert json.loads(_forward({**BODY, "cache_salt": "theirs"}, salt="ours").body) == {**BODY, "cache_salt": "ours"}


@pytest.mark.parametrize(
    ("options", "sent", "strip"),
    [
        (None, {"include_usage": True}, True),
        ({}, {"include_usage": True}, True),
        ({"include_usage": False}, {"include_usage": True}, True),
        ({"x": 1}, {"x": 1, "include_usage": True}, True),
        ({"include_usage": True, "x": 1}, {"include_usage": True, "x": 1}, False),
        ({"include_usage": 1}, {"include_usage": 1}, False),
        ({"include_usage": "yes"}, {"include_usage": "yes"}, False),
        ({"include_usage": "no"}, {"include_usage": True}, True),
    ],
)
def test_streams_always_report_usage(options: Any, sent: Any, strip: bool) -> None:
    body = {**BODY, "stream": True} if options is None else {**BODY, "stream": True, "stream_options": options}
    forwarded = _forward(body)
    assert json.loads(forwarded.body)["stream_options"] == sent
    assert (forwarded.streams, forwarded.strip_usage) == (True, strip)


@pytest.mark.parametrize("stream", [False, None, 0, "false", "Off", "n", "maybe", 2, []])
def test_stream_values_that_an_engine_reads_as_false_do_not_stream(stream: Any) -> None:
    forwarded = _forward({**BODY, "stream": stream})
    assert (forwarded.streams, forwarded.strip_usage) == (False, False)


@pytest.mark.parametrize("stream", [True, 1, 1.0, "true", "Yes", "ON", "1", "t", "y"])
def test_stream_values_that_an_engine_reads_as_true_stream_and_are_normalized(stream: Any) -> None:
    forwarded = _forward({**BODY, "stream": stream})
    assert (forwarded.streams, forwarded.strip_usage) == (True, True)
    assert json.loads(forwarded.body)["stream"] is True


@pytest.mark.parametrize(
    ("given", "sent"), [(16, "16"), (16.0, "16"), ("16", "16"), (True, "1"), ("x", '"x"'), (1.5, "1.5"), (None, "null")]
)
def test_a_lenient_number_is_forwarded_in_normalized_form(given: Any, sent: str) -> None:
    body = msgspec.json.decode(_forward({**BODY, "max_tokens": given}).body, type=dict[str, msgspec.Raw])
    assert bytes(body["max_tokens"]).decode() == sent


def test_credentials_are_not_forwarded() -> None:
    headers = _forward(BODY, authorization=b"Bearer hw_secret", cookie=b"a", traceparent=b"00-1-2-3").headers
    assert "authorization" not in headers
    assert headers["traceparent"] == "00-1-2-3"
    assert headers["accept-encoding"] == "identity"
    assert headers["x-request-id"] == "id-1"
    assert "cookie" not in headers


async def test_large_bodies_are_sent_in_pieces() -> None:
    forwarded = _forward({**BODY, "messages": "x" * 2_000_000})
    payload, headers = forwarded.payload()
    assert not isinstance(payload, bytes)
    pieces = [bytes(piece) async for piece in payload]
    assert (b"".join(pieces), max(map(len, pieces)) < 1_000_000) == (forwarded.body, True)
    assert headers == {"content-length": str(len(forwarded.body))}
    assert _forward(BODY).payload() == (_forward(BODY).body, {})


@pytest.mark.parametrize("fields", [{}, {"stream": True, "request_id": "mine", "cache_salt": "x"}])
async def test_long_media_reach_the_engine_unchanged(tmp_path: Path, fields: dict[str, Any]) -> None:
    url = "data:image/png;base64," + "iVBORw0K" * (9 << 17)
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "image_url", "image_url": {"url": url[:-8]}}]
    body = {"model": MODEL, "messages": [{"role": "user", "content": parts}], **fields}
    async with ScriptedEngine() as engine, ScriptedEngine() as other:
        engine.status = other.status = 503
        async with served([engine.url, other.url], tmp_path) as gateway:
            sent = json.dumps(body).encode()
            headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
            where = gateway.url + CHAT
            async with gateway.client.post(where, data=io.BytesIO(sent), headers=headers) as response:
                assert response.status == 503
    for item in (engine, other):
        (got,), (head,) = item.bodies, item.headers
        assert len({part.pop("uuid") for part in got["messages"][0]["content"]}) == 2
        assert got["messages"] == body["messages"]
        assert int(head["content-length"]) == len(item.raw_bodies[0])
        assert "request_id" not in got
        assert got.get("cache_salt") != "x"
        assert ("stream_options" in got) is bool(fields)
