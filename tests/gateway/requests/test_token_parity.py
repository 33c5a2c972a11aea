"""A gateway with exact keys counts the same tokens as the engine's chat template, at each endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from typing_extensions import override

from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
VARIABLES = ("reasoning_effort", "documents")
USER = [{"role": "user", "content": "x" * 100}]


class TemplateEngine(ScriptedEngine):
    """Render as vLLM does: a chat's own fields are template variables, and /tokenize supports none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.rendered: list[str] = []
        """The rendered prompts of requests."""

    @override
    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        text = _rendered(await request.json())
        return web.json_response({"tokens": list(text.encode()), "count": len(text)})

    @override
    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        own = {name: body[name] for name in VARIABLES if body.get(name) is not None}
        variables = body.get("chat_template_kwargs") or {}
        if "reasoning_effort" in own:
            variables = {"enable_thinking": own["reasoning_effort"] != "none", **variables}
        self.rendered.append(_rendered({**body, "chat_template_kwargs": {**variables, **own}}))
        usage = {"prompt_tokens": len(self.rendered[-1].encode()), "completion_tokens": 1}
        return web.json_response({"id": "x", "choices": [{"index": 0, "text": "y"}], "usage": usage})


def _rendered(body: dict[str, Any]) -> str:
    if "messages" not in body:
        return ("" if body.get("add_special_tokens") in (False, "no") else "<s>") + str(body.get("prompt", "embedded"))
    variables = dict(sorted((body.get("chat_template_kwargs") or {}).items()))
    head = msgspec.json.encode([variables, body.get("tools"), body.get("add_special_tokens", False)]).decode()
    return head + "".join(str(item["content"]) for item in body["messages"])


@pytest.fixture
async def engine() -> AsyncIterator[TemplateEngine]:
    async with TemplateEngine() as engine:
        yield engine


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": USER}),
        (CHAT, {"messages": USER, "reasoning_effort": "high"}),
        (CHAT, {"messages": USER, "reasoning_effort": "none", "chat_template_kwargs": {"verbose": 1}}),
        (CHAT, {"messages": USER, "documents": [{"title": "a", "text": "b" * 50}]}),
        (CHAT, {"messages": USER, "tools": [{"type": "function"}], "tool_choice": "none", "add_special_tokens": True}),
        (COMPLETIONS, {"prompt": "x" * 100}),
        (COMPLETIONS, {"prompt": "x" * 100, "add_special_tokens": False}),
        (COMPLETIONS, {"prompt": "x" * 100, "add_special_tokens": "no"}),
    ],
)
async def test_the_prompt_length_equals_the_engines(
    gateway: ServedGateway, engine: TemplateEngine, path: str, body: dict[str, Any]
) -> None:
    body = {"model": MODEL, "max_tokens": 1, **body}
    status, answer, headers = await gateway.post(path, body)
    assert status == 200
    record = gateway.app.recent.get(headers["x-headway-decision"])
    assert record.key_source == "tokenized"
    wanted = answer["usage"]["prompt_tokens"]
    assert record.decision.prompt_tokens == wanted
    for door in ({"x-original-uri": path}, {}):
        status, routed, _ = await gateway.post("/api/v1/route", {**body, "wait": False}, headers=door)
        assert (status, routed["prompt_tokens"]) == (200, wanted)


async def test_a_text_with_and_without_special_tokens_is_two_prompts(gateway: ServedGateway) -> None:
    lengths = []
    for special in (True, False, True):
        body = {"model": MODEL, "prompt": "x" * 100, "max_tokens": 1, "add_special_tokens": special}
        _, answer, headers = await gateway.post(COMPLETIONS, body)
        record = gateway.app.recent.get(headers["x-headway-decision"])
        lengths.append((record.decision.prompt_tokens, answer["usage"]["prompt_tokens"]))
    assert lengths == [(103, 103), (100, 100), (103, 103)]


@pytest.mark.parametrize(
    ("body", "source", "tokens"),
    [
        ({"prompt": "x" * 37, "truncate_prompt_tokens": 10}, "unmatched", 10),
        ({"prompt": "x" * 37, "truncate_prompt_tokens": "40"}, "tokenized", 40),
        ({"prompt": list(range(40)), "truncate_prompt_tokens": 10}, "unmatched", 10),
        ({"prompt": "x" * 997, "truncate_prompt_tokens": -1, "max_tokens": 20}, "unmatched", 30),
        ({"prompt": "x" * 37, "truncate_prompt_tokens": -1}, "tokenized", 40),
        ({"prompt_embeds": "A" * 8192 * 60}, "unmatched", 61),
    ],
)
async def test_a_prompt_known_only_to_its_engine_is_never_too_long(
    engine: TemplateEngine, tmp_path: Path, body: dict[str, Any], source: str, tokens: int
) -> None:
    async with served([engine.url], tmp_path, max_prompt_tokens=50) as gateway:
        sent = {"model": MODEL, **body}
        status, _, headers = await gateway.post(COMPLETIONS, sent)
        record = gateway.app.recent.get(headers["x-headway-decision"])
        assert (status, record.key_source, record.decision.prompt_tokens) == (200, source, tokens)
        assert engine.bodies == [sent]
        for door in ({"x-original-uri": COMPLETIONS}, {}):
            status, routed, _ = await gateway.post("/api/v1/route", {**sent, "wait": False}, headers=door)
            assert (status, routed["prompt_tokens"]) == (200, tokens)
            assert routed["key_source"] == source.replace("tokenized", "remembered")
