"""The endpoint picker protocol, statement by statement: proposal 004 of the Gateway API Inference Extension, v1.0.0.

What the proposal leaves to Envoy's ext_proc is tested, too: the order of replies, body modes, and trailers.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.deploy.real_proxy import require_grpc

require_grpc()

from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from deploy.envoy.replies import ENDPOINT
from tests.deploy.behind import CHAT
from tests.deploy.ext_proc_stream import (
    ScriptedHeadway,
    answer,
    ask,
    body,
    endpoint_of,
    headers,
    picker,
    scripted_headway,
    set_headers,
    settings,
    status,
    streamed,
)
from tests.patience import until

ONE, TWO, THREE, FOUR = (f"10.1.0.{number}:8000" for number in range(1, 5))
DATA = json.dumps(CHAT).encode()
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}\n\ndata: [DONE]\n\n'


@pytest.fixture
async def headway() -> AsyncIterator[ScriptedHeadway]:
    async with scripted_headway() as made:
        yield made


def url(*endpoints: str) -> list[str]:
    return [f"http://{endpoint}" for endpoint in endpoints]


async def reported(headway: ScriptedHeadway, *verbs: str) -> None:
    """Wait until these outcomes were reported, in this order."""
    await until(lambda: len(headway.reports) >= len(verbs))
    assert [verb for verb, _ in headway.reports] == list(verbs)


# Endpoint subset


@pytest.mark.parametrize("subset", [[ONE, TWO], f"{ONE}, {TWO}"])
async def test_only_endpoints_of_the_subset_are_selected(headway: ScriptedHeadway, subset: Any) -> None:
    headway.engines = url(THREE, ONE, FOUR)
    async with picker(settings(headway.url)) as opened:
        await ask(opened)
        assert endpoint_of((await ask(opened, subset=subset))[1]) == [ONE]
        # Outside the subset: the decision is canceled, and a known endpoint of the subset serves.
        assert endpoint_of((await ask(opened, subset=subset))[1]) == [ONE]
    # The third decision, and two requests that ended without an answer.
    assert [verb for verb, _ in headway.reports] == ["cancel"] * 3
    assert [received.get(f"{ENDPOINT}-subset") for received, _ in headway.asked] == [None, *[f"{ONE},{TWO}"] * 2]


@pytest.mark.parametrize("subset", [[], "", [FOUR]])
async def test_subset_that_is_empty_or_has_no_eligible_endpoint_gets_503(headway: ScriptedHeadway, subset: Any) -> None:
    async with picker(settings(headway.url)) as opened:
        rejected = (await ask(opened, subset=subset))[1].immediate_response
    assert rejected.status.code == 503
    assert set_headers(rejected.headers)["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"


async def test_header_with_a_subset_counts_only_if_the_proxy_is_trusted_to_set_it(headway: ScriptedHeadway) -> None:
    headway.engines = url(TWO, ONE)
    sent = {f"{ENDPOINT}-subset": f" {TWO} "}
    async with picker(settings(headway.url)) as opened:
        assert endpoint_of((await ask(opened, sent=sent))[1])[0] == TWO
        _, first = await ask(opened, sent=sent)
        assert endpoint_of(first)[0] == ONE
        assert f"{ENDPOINT}-subset" in first.request_headers.response.header_mutation.remove_headers
    headway.engines = url(TWO, ONE)
    async with picker(settings(headway.url, subset_header=True)) as opened:
        await ask(opened)
        assert endpoint_of((await ask(opened, sent=sent))[1]) == [TWO]
        assert endpoint_of((await ask(opened, subset=[ONE], sent=sent))[1]) == [ONE]


async def test_without_a_subset_any_endpoint_may_be_selected(headway: ScriptedHeadway) -> None:
    headway.engines = url(ONE, TWO)
    async with picker(settings(headway.url)) as opened:
        assert [endpoint_of((await ask(opened))[1])[0] for _ in range(2)] == [ONE, TWO]


# Destination endpoint


async def test_endpoint_is_in_header_and_metadata_followed_by_fallbacks_in_order(headway: ScriptedHeadway) -> None:
    headway.engines = url(TWO, ONE, FOUR, THREE)
    async with picker(settings(headway.url)) as opened:
        named = [endpoint_of((await ask(opened))[1]) for _ in range(4)]
    assert named == [[TWO], [ONE, TWO], [FOUR, ONE, TWO], [THREE, ONE, TWO]]


async def test_endpoint_is_ip_and_port_of_an_engine_with_a_path_or_ipv6(headway: ScriptedHeadway) -> None:
    headway.engines = ["http://[fd00::1]:8000/base", "http://10.1.0.1:8000"]
    async with picker(settings(headway.url)) as opened:
        assert endpoint_of((await ask(opened))[1]) == ["[fd00::1]:8000"]
        assert endpoint_of((await ask(opened))[1]) == ["10.1.0.1:8000", "[fd00::1]:8000"]


REJECTIONS = [
    (503, "no_engine", "rejected-no-endpoints"),
    (503, "shutting_down", None),
    (429, "queue_full", "rejected-saturated"),
    (429, "infeasible", "rejected-saturated"),
    (429, "wait_expired", "rejected-ttl-expired"),
    (429, "deadline_passed", "rejected-ttl-expired"),
    (404, "model_not_found", ""),
    (401, "invalid_api_key", ""),
]


@pytest.mark.parametrize(("code", "name", "reason"), REJECTIONS)
async def test_rejection_is_an_immediate_response_with_its_reason(
    headway: ScriptedHeadway, code: int, name: str, reason: str | None
) -> None:
    stated = {"x-llm-d-request-dropped-reason": reason} if reason else {}
    headway.rejection = code, name, {"retry-after": "7", **stated}
    async with picker(settings(headway.url)) as opened:
        rejected = (await ask(opened))[1].immediate_response
    assert rejected.status.code == code
    named = set_headers(rejected.headers)
    if reason is None:
        # A gateway that ends is no answer: the picker fails open, here without an engine.
        assert named["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"
        return
    assert (named["retry-after"], named["content-type"]) == ("7", "application/json")
    assert named.get("x-llm-d-request-dropped-reason", "") == reason
    assert rejected.details == f"headway_{name}"
    assert json.loads(rejected.body)["error"]["code"] == name


@pytest.mark.parametrize("sent", [b"x" * 40, b"[1, 2, 3, 4, 5, 6, 7, 8]", b""])
async def test_body_that_is_no_json_object_gets_400_and_no_decision(headway: ScriptedHeadway, sent: bytes) -> None:
    async with picker(settings(headway.url)) as opened:
        rejected = (await ask(opened, sent))[1].immediate_response
    assert (rejected.status.code, json.loads(rejected.body)["error"]["code"]) == (400, "invalid_json")
    assert not headway.asked


# Destination endpoint served


@pytest.mark.parametrize("where", ["metadata", "attribute"])
@pytest.mark.parametrize(("by", "verbs"), [(ONE, ("first_token", "complete")), (TWO, ("fail",))])
async def test_another_endpoint_that_served_is_a_failure_of_the_selected_one(
    headway: ScriptedHeadway, where: str, by: str, verbs: tuple[str, ...]
) -> None:
    async with picker(settings(headway.url)) as opened:
        stream, _ = await ask(opened)
        await stream.write(status(200, by) if where == "metadata" else status(200, attribute=by))
        await stream.write(answer(b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n', ends=False))
        await stream.write(answer(USAGE, ends=True))
        await reported(headway, *verbs)


async def test_answer_names_its_decision_and_its_first_content_and_usage_are_reported(headway: ScriptedHeadway) -> None:
    async with picker(settings(headway.url)) as opened:
        stream, _ = await ask(opened)
        await stream.read()
        await stream.write(status(200))
        head = (await stream.read()).response_headers.response.header_mutation
        assert set_headers(head) == {"x-headway-decision": "decision-1", "x-request-id": "decision-1"}
        role = b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
        content = b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n'
        for piece, ends in ((role, False), (content, False), (USAGE, False), (b"", True)):
            await stream.write(answer(piece, ends=ends))
            echoed = streamed(await stream.read())
            assert (echoed.body, echoed.end_of_stream) == (piece, ends)
        await reported(headway, "first_token", "complete")
    assert headway.reports[1][1] == {"prompt_tokens": 9, "output_tokens": 2}


# Phases and modes of ext_proc


async def test_body_with_trailers_is_answered_in_order_and_ended_by_them(headway: ScriptedHeadway) -> None:
    async with picker(settings(headway.url)) as opened:
        stream = opened()
        await stream.write(headers())
        await stream.write(body(DATA[:9], ends=False))
        await stream.write(body(DATA[9:], ends=False))
        await stream.write(ext_proc.ProcessingRequest(request_trailers=ext_proc.HttpTrailers()))
        replies = [await stream.read() for _ in range(3)]
        assert [reply.WhichOneof("response") for reply in replies] == [
            "request_headers",
            "request_body",
            "request_trailers",
        ]
        assert (streamed(replies[1]).body, streamed(replies[1]).end_of_stream) == (DATA, False)
        await stream.write(status(200))
        await stream.write(answer(b'{"choices": [], "usage": {"prompt_tokens": 1}}', ends=False))
        await stream.write(ext_proc.ProcessingRequest(response_trailers=ext_proc.HttpTrailers()))
        replies = [await stream.read() for _ in range(3)]
        assert [reply.WhichOneof("response") for reply in replies] == [
            "response_headers",
            "response_body",
            "response_trailers",
        ]
        await reported(headway, "first_token", "complete")


GET = {":method": "GET", ":path": "/v1/models"}


async def got(opened: Any, subset: Any = None) -> Any:
    """Send a request without a body; return the reply."""
    stream = opened()
    await stream.write(headers(subset, GET, endOfStream=True))
    return await stream.read()


async def test_request_without_a_body_goes_to_a_known_endpoint_at_once(headway: ScriptedHeadway) -> None:
    async with picker(settings(headway.url)) as opened:
        assert (await got(opened)).immediate_response.status.code == 503
        # Nothing is known yet, but the proxy names its endpoints.
        assert endpoint_of(await got(opened, [TWO])) == [TWO]
        assert (await got(opened, [])).immediate_response.status.code == 503
        await ask(opened)
        assert endpoint_of(await got(opened)) == [ONE]
        assert endpoint_of(await got(opened, [TWO, ONE])) == [ONE]
    async with picker(settings(headway.url, f"http://{TWO}")) as opened:
        assert endpoint_of(await got(opened)) == [TWO]
    assert len(headway.asked) == 1


async def test_buffered_body_is_answered_whole_with_the_endpoint(headway: ScriptedHeadway) -> None:
    headway.fields = {"cache_salt": "salt"}
    buffered, streams = ProcessingMode.BUFFERED, ProcessingMode.STREAMED
    async with picker(settings(headway.url)) as opened:
        stream = opened()
        await stream.write(headers(mode=buffered, answer_mode=streams))
        assert (await stream.read()).WhichOneof("response") == "request_headers"
        await stream.write(body(DATA, ends=True))
        reply = await stream.read()
        assert endpoint_of(reply) == [ONE]
        common = reply.request_body.response
        assert json.loads(common.body_mutation.body) == {**CHAT, "cache_salt": "salt"}
        assert set_headers(common.header_mutation)["content-length"] == str(len(common.body_mutation.body))
        assert common.clear_route_cache
        await stream.write(status(200))
        assert (await stream.read()).WhichOneof("response") == "response_headers"
        await stream.write(answer(USAGE, ends=True))
        # In this mode Envoy keeps the answer's bytes.
        assert not (await stream.read()).response_body.response.HasField("body_mutation")


@pytest.mark.parametrize(("code", "verb"), [(200, "complete"), (400, "cancel"), (500, "fail")])
async def test_answer_whose_body_the_picker_does_not_get_is_judged_by_its_status(
    headway: ScriptedHeadway, code: int, verb: str
) -> None:
    async with picker(settings(headway.url)) as opened:
        stream = opened()
        await stream.write(headers(answer_mode=ProcessingMode.NONE))
        await stream.write(body(DATA, ends=True))
        await stream.write(status(code))
        await stream.done_writing()
        assert [(await stream.read()).WhichOneof("response") for _ in range(3)][2] == "response_headers"
        await reported(headway, verb)


async def test_subset_may_come_with_the_body(headway: ScriptedHeadway) -> None:
    last = body(DATA, ends=True)
    last.metadata_context.CopyFrom(headers([FOUR]).metadata_context)
    async with picker(settings(headway.url)) as opened:
        stream = opened()
        await stream.write(headers())
        await stream.write(last)
        assert (await stream.read()).immediate_response.status.code == 503


@pytest.mark.parametrize("mode", [ProcessingMode.NONE, ProcessingMode.STREAMED])
async def test_mode_in_which_no_endpoint_can_be_named_is_an_error_that_says_so(
    headway: ScriptedHeadway, mode: int
) -> None:
    async with picker(settings(headway.url)) as opened:
        stream = opened()
        await stream.write(headers(mode=mode))
        rejected = (await stream.read()).immediate_response
    assert rejected.status.code == 500
    assert b"FULL_DUPLEX_STREAMED" in rejected.body


async def test_proxy_that_states_no_modes_streams_both_bodies(headway: ScriptedHeadway) -> None:
    first = headers()
    first.ClearField("protocol_config")
    async with picker(settings(headway.url)) as opened:
        stream = opened()
        await stream.write(first)
        await stream.write(body(DATA, ends=True))
        assert endpoint_of(await stream.read()) == [ONE]


# Headers of the client


async def test_headway_gets_the_clients_identity_session_and_objectives(headway: ScriptedHeadway) -> None:
    passed = {
        "x-session-id": "s-1",
        "x-claude-code-session-id": "c-1",
        "x-headway-slo-class": "interactive",
        "x-llm-d-slo-ttft-ms": "500",
        "x-gateway-inference-objective": "batch",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    forged = {"x-headway-client-authorization": "Bearer forged", "x-headway-peer-proof": "x", "x-headway-client": "1"}
    others = {"cookie": "a=b", "x-forwarded-for": "192.0.2.1", "x-agent": "käse"}
    async with picker(settings(headway.url)) as opened:
        _, first = await ask(opened, sent={**passed, **forged, **others, "authorization": "Bearer client"})
        await ask(opened, sent={"x-api-key": "anthropic", "x-session-id": "ü"})
    asked, second = (received for received, _ in headway.asked)
    assert passed.items() <= asked.items()
    assert asked["x-headway-client-authorization"] == "Bearer client"
    assert not {"x-headway-peer-proof", "x-headway-client", *others} & asked.keys()
    assert second["x-headway-client-authorization"] == "Bearer anthropic"
    # Visible ASCII alone can be sent on.
    assert "x-session-id" not in second
    removed = set(first.request_headers.response.header_mutation.remove_headers)
    assert {"authorization", "x-headway-slo-class", "x-llm-d-slo-ttft-ms", "x-gateway-inference-objective"} <= removed
    assert not {"traceparent", "x-session-id", "cookie"} & removed
