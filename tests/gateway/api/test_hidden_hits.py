"""With shared caches, responses to right and wrong guesses are equal in numbers, sizes, and headers."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace
from typing_extensions import override

from routing.policy.admission_document import AdmissionDocument
from routing.policy.policy_document import RoutingPolicy
from tests.gateway.api.test_fleet_visibility import distinguishability, numbers_in
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, OTHER_KEY, ServedGateway, served

PROBES = 24
"""Of each kind. The clock does not move, so one answer that differs is enough for an area of more than 0.52."""
POOL: dict[str, Any] = {"key_source": "approximate", "block_bytes": 64}
WIDE = RoutingPolicy(prefill_window_tokens=1_000_000)
"""No request waits for a prefill: such a wait reveals what is cached, and always will."""
CHANGING = ("date", "x-request-id", "x-headway-decision")
"""Headers that differ in every answer, and are no figures of a cache."""


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    # Stopped at this moment, because a machine that has just started may have no earlier ones.
    for name, stopped in (("time", time.time()), ("monotonic", time.monotonic())):
        monkeypatch.setattr(f"gateway.api.route_api.{name}", lambda stopped=stopped: stopped)


class FullyScriptedEngine(ScriptedEngine):
    """Also answer chats, completions, and tokenizing by script."""

    @override
    async def _complete(self, request: web.Request) -> web.StreamResponse:
        scripted = request.path in self.scripts
        return await (self._scripted(request) if scripted else super()._complete(request))

    @override
    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        scripted = request.path in self.scripts
        return await (self._scripted(request) if scripted else super()._tokenize(request))


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with FullyScriptedEngine() as running:
        yield running


@pytest.fixture
async def gateway(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with served([engine.url], tmp_path, policy=WIDE, **POOL) as running:
        yield running


async def answer_to(gateway: ServedGateway, path: str, body: Any, *, key: str = OTHER_KEY) -> dict[str, float]:
    """Return all numbers of a response: of its JSON, events and headers, and its status and length."""
    headers = {"authorization": f"Bearer {key}"}
    async with gateway.client.post(gateway.url + path, json=body, headers=headers) as response:
        raw, headers = await response.read(), response.headers
    numbers: dict[str, float] = {"status": response.status, "bytes": len(raw)}
    numbers |= {
        name: float(value) for name, value in headers.items() if value.isdigit() and name.lower() not in CHANGING
    }
    for index, text in enumerate(raw.split(b"data: ") if raw.startswith((b"data: ", b"event: ")) else [raw]):
        if text.strip()[:1] == b"{":
            value = json.loads(text.partition(b"\n")[0])
            numbers |= {f"{index}:{name}": item for name, item in numbers_in(value)}
    return numbers


def worst(hits: Sequence[dict[str, float]], misses: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the AUC of every number that separates hits from misses; a missing number counts as −1."""
    names = {name for hit in (*hits, *misses) for name in hit}
    areas = {
        name: distinguishability([e.get(name, -1) for e in hits], [e.get(name, -1) for e in misses]) for name in names
    }
    return {name: area for name, area in areas.items() if area > 0.5}


def guess(number: int, *, right: bool) -> str:
    return f"{'secret' if right else 'random'} {number:04d} of tenant a " * 100


async def learn(gateway: ServedGateway) -> None:
    """Have tenant a send its prompts."""
    for number in range(PROBES):
        body = {"model": MODEL, "prompt": guess(number, right=True), "max_tokens": 2}
        assert (await gateway.post("/v1/completions", body))[0] == 200


async def decided(gateway: ServedGateway, prompt: str, **fields: Any) -> tuple[str, dict[str, float]]:
    """Reserve an engine; return the decision's id, and the numbers of a batch requested meanwhile."""
    route = {"model": MODEL, "prompt": prompt, "wait": False, **fields}
    _, answer, _ = await gateway.post("/api/v1/route", route, key=OTHER_KEY)
    batch = [route, {"model": MODEL, "prompt": "fresh " * 100, "wait": False, "cache_salt": prompt[:11]}]
    return answer["decision_id"], await answer_to(gateway, "/api/v1/route/batch", batch)


@pytest.mark.parametrize("wait", [True, False])
async def test_decisions_batches_and_reports_do_not_reveal_hits(gateway: ServedGateway, wait: bool) -> None:
    await learn(gateway)
    numbers: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for number in range(PROBES):
        for right in (True, False):
            body = {"model": MODEL, "prompt": guess(number, right=right), "wait": wait}
            answers = {"route": await answer_to(gateway, "/api/v1/route", body)}
            decision_id, answers["batch"] = await decided(gateway, body["prompt"])
            for verb in ("first_token", "complete"):
                answers[verb] = await answer_to(gateway, f"/api/v1/requests/{decision_id}/{verb}", {})
            explained, _ = await gateway.get(f"/api/v1/explain/{decision_id}", key=OTHER_KEY)
            assert explained == 403
            numbers[right].append(
                {f"{name} {part}": value for name, item in answers.items() for part, value in item.items()}
            )
    assert worst(numbers[True], numbers[False]) == {}


async def test_retry_after_does_not_reveal_hits(engine: ScriptedEngine, tmp_path: Path) -> None:
    policy = RoutingPolicy(admission=AdmissionDocument(mode="early"))
    numbers: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    async with served([engine.url], tmp_path, policy=policy, **POOL) as gateway:
        for key_id in ("ka", "kb"):
            gateway.app._route_api._reporting.reported(key_id, time.monotonic())
        hashes = {
            right: [[first + 1000 * number + block for block in range(400)] for number in range(PROBES)]
            for right, first in ((True, 0), (False, 500_000))
        }
        for hash_ in hashes[True]:
            body = {"model": MODEL, "block_hashes": hash_, "prompt_tokens": 60_000, "wait": False, "ttft_slo_s": 3600}
            _, answer, _ = await gateway.post("/api/v1/route", body)
            await gateway.post(f"/api/v1/requests/{answer['decision_id']}/complete", {})
        for number in range(PROBES):
            for right in (True, False):
                body = {"model": MODEL, "block_hashes": hashes[right][number], "prompt_tokens": 60_000, "wait": False}
                ids = []
                for _ in range(2):
                    _, answer, _ = await gateway.post("/api/v1/route", {**body, "ttft_slo_s": 3600}, key=OTHER_KEY)
                    ids.append(answer["decision_id"])
                impatient = {"model": MODEL, "block_hashes": [7], "prompt_tokens": 50_000, "ttft_slo_s": 0.1}
                answers = await answer_to(gateway, "/api/v1/route", impatient)
                assert answers["status"] == 429
                numbers[right].append(answers)
                for id_ in ids:
                    await gateway.post(f"/api/v1/requests/{id_}/cancel", {}, key=OTHER_KEY)
    assert worst(numbers[True], numbers[False]) == {}


async def test_a_keys_slot_expires_as_late_after_a_hit_as_after_a_miss(gateway: ServedGateway) -> None:
    await learn(gateway)
    keys = gateway.gateway._api_keys
    keys.update({sha256: replace(key, max_in_flight=10) for sha256, key in keys.items()})
    quotas, ends = gateway.gateway.key_quotas, list[float]()
    end_by = quotas.end_by
    quotas.end_by = lambda request_id, end_s: (ends.append(end_s), end_by(request_id, end_s))[1]  # type: ignore[method-assign]
    for right in (True, False):
        body = {"model": MODEL, "prompt": guess(0, right=right)}
        assert (await gateway.post("/api/v1/route", body, key=OTHER_KEY))[0] == 200
    assert ends[0] == ends[1]


USAGE = {"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102}


def whole_answer(path: str, *, hit: bool) -> dict[str, Any]:
    """Return an engine's response with every field that can reveal a hit."""
    cached = 64 if hit else 0
    extra = {
        "sglext": {"cached_tokens_details": {"device": cached, "host": 0}},
        "metrics": {"time_to_first_token_ms": 3.0 if hit else 40.0},
        "kv_transfer_params": {"remote_num_tokens": cached},
    }
    if path == "/v1/messages":
        counted = {"input_tokens": 100 - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0}
        return {"type": "message", "content": [], "usage": {**counted, "output_tokens": 2}, **extra}
    if path == "/v1/responses":
        details = {"cached_tokens": cached, "cached_tokens_per_turn": [cached]}
        return {"object": "response", "usage": {"input_tokens": 100, "input_tokens_details": details}, **extra}
    choice = {
        "index": 0,
        "text": "x",
        "meta_info": {"cached_tokens": cached},
        "hidden_states": [[0.5]] * (101 - cached),
    }
    return {"choices": [choice], "usage": {**USAGE, "prompt_tokens_details": {"cached_tokens": cached}}, **extra}


def streamed_answer(path: str, *, hit: bool) -> list[bytes]:
    """Return the same response as events: typed for messages and responses, with usage in the first and last one."""
    answer = whole_answer(path, hit=hit)
    if path == "/v1/messages":
        events = [{"type": "message_start", "message": answer}, {"type": "message_delta", "usage": answer["usage"]}]
    elif path == "/v1/responses":
        delta = {"type": "response.output_text.delta", "delta": "x"}
        events = [delta, {"type": "response.completed", "response": answer}]
    else:
        events = [answer, {"choices": [], "usage": answer["usage"], "sglext": answer["sglext"]}]
    named = b"event: x\n" if path in ("/v1/messages", "/v1/responses") else b""
    return [*(named + b"data: " + json.dumps(event).encode() + b"\n\n" for event in events), b"data: [DONE]\n\n"]


BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/completions": {"prompt": "hello"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4},
    "/v1/responses": {"input": "hello"},
    "/v1/embeddings": {"input": "hello"},
    "/v1/rerank": {"query": "hello", "documents": ["a"]},
    "/tokenize": {"prompt": "hello"},
}
STREAMED = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")


async def proxied(
    engine: ScriptedEngine, gateway: ServedGateway, path: str, *, streamed: bool, hit: bool, key: str = OTHER_KEY
) -> dict[str, float]:
    engine.scripts[path] = (
        streamed_answer(path, hit=hit) if streamed else json.dumps(whole_answer(path, hit=hit)).encode()
    )
    body = {
        "model": MODEL,
        **BODIES[path],
        **({"stream": True, "return_cached_tokens_details": True} if streamed else {}),
    }
    return await answer_to(gateway, path, body, key=key)


@pytest.mark.parametrize(
    ("path", "streamed"), [*((item, False) for item in BODIES), *((item, True) for item in STREAMED)]
)
async def test_proxied_responses_do_not_reveal_hits(
    engine: ScriptedEngine, gateway: ServedGateway, path: str, streamed: bool
) -> None:
    numbers = {
        hit: [await proxied(engine, gateway, path, streamed=streamed, hit=hit) for _ in range(3)]
        for hit in (True, False)
    }
    assert numbers[True][0]["status"] == 200
    assert worst(numbers[True], numbers[False]) == {}
    operators = [[await proxied(engine, gateway, path, streamed=streamed, hit=hit, key=KEY)] for hit in (True, False)]
    assert len(worst(*operators)) > 2, "an operator sees the engine's own figures"


@pytest.mark.parametrize("status", [400, 404, 429])
async def test_engine_errors_do_not_reveal_hits(engine: ScriptedEngine, gateway: ServedGateway, status: int) -> None:
    numbers = []
    for cached in (64, 0):
        engine.status, engine.error = status, {"message": "no", "cached_tokens": cached, "sglext": {"a": cached}}
        numbers.append([await answer_to(gateway, "/v1/completions", {"model": MODEL, "prompt": "hello"})])
        assert numbers[-1][0]["status"] == status
    assert worst(*numbers) == {}


async def test_fields_that_request_hits_reach_the_engine_only_for_operators_keys(
    engine: ScriptedEngine, gateway: ServedGateway
) -> None:
    body = {"model": MODEL, "prompt": "hello", "return_cached_tokens_details": True, "return_hidden_states": True}
    for key in (OTHER_KEY, KEY):
        assert (await gateway.post("/v1/completions", body, key=key))[0] == 200
    asked = [{"return_cached_tokens_details", "return_hidden_states"} & set(item) for item in engine.bodies]
    assert [len(item) for item in asked] == [0, 2]


async def test_one_tenants_prompt_is_not_remembered_for_another(engine: ScriptedEngine, tmp_path: Path) -> None:
    body = {"model": MODEL, "prompt": guess(0, right=True), "wait": False}
    async with served([engine.url], tmp_path) as gateway:
        sources = [
            (await gateway.post("/api/v1/route", body, key=key))[1]["key_source"] for key in (KEY, KEY, OTHER_KEY)
        ]
    assert sources == ["tokenized", "remembered", "tokenized"]


async def test_a_response_whose_hits_cannot_be_removed_is_not_forwarded(
    engine: ScriptedEngine, gateway: ServedGateway
) -> None:
    engine.scripts["/v1/completions"] = b'{"usage": {"prompt_tokens_details": {"cached_tokens": 64}}, "choices": [NaN]}'
    status, answer, _ = await gateway.post("/v1/completions", {"model": MODEL, "prompt": "hello"}, key=OTHER_KEY)
    assert (status, answer["error"]["code"]) == (502, "engine_error")
    engine.scripts["/v1/completions"] = [b'data: {"choices": []}\n\n', b'data: {"cached_tokens": 64, NaN}\n\n']
    async with gateway.client.post(
        gateway.url + "/v1/completions",
        json={"model": MODEL, "prompt": "hello", "stream": True},
        headers={"authorization": f"Bearer {OTHER_KEY}"},
    ) as response:
        text = await response.read()
    assert b"error" in text
    assert b"64" not in text
