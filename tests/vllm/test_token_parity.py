"""Each field that vLLM accepts, and each lenient value, means the same to the gateway as to a real engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import msgspec
import pytest

from gateway.contracts.key_source import TOKENIZED, UNMATCHED
from gateway.contracts.snapshot import PoolEntry
from gateway.pools.engines.vllm_adapter import VllmAdapter
from gateway.pools.pool.live_pool import LivePool
from gateway.requests.formats.endpoints import BY_PATH, CHAT, COMPLETIONS
from gateway.requests.formats.engine_usage import Usage
from gateway.requests.prompt_keys import KeyedPrompt, PromptKeys
from gateway.server.http.json_body import lax_flag, lax_int
from kvstore.keys.block_keys import key_seed, token_block_keys
from tests.gateway.requests.formats.vllm_fields import (
    BODIES,
    CASES,
    FIELDS,
    SAME,
    TEMPLATE,
    TEXT,
    TOOL,
    UNKNOWN,
    bodies_of,
)
from tests.vllm.conftest import MODEL as MODEL_FOLDER
from tests.vllm.conftest import PYTHON, TOOLS
from tests.vllm.real_engine import BLOCK_TOKENS, MODEL, RealEngine

pytestmark = pytest.mark.vllm
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
SCHEMAS = {CHAT: "ChatCompletionRequest", COMPLETIONS: "CompletionRequest"}
SEED = key_seed(b"secret", MODEL, "", "")
BEGIN = {"SpecialToken": {"id": "<s>", "type_id": 0}}
WITH_BEGIN = {
    "type": "TemplateProcessing",
    "single": [BEGIN, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [BEGIN, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> Iterator[RealEngine]:
    """Run an engine whose template reads every field, and whose tokenizer adds a special token before texts."""
    folder = tmp_path_factory.mktemp("parity")
    model = Path(shutil.copytree(MODEL_FOLDER, folder / "model"))
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    (model / "tokenizer.json").write_text(json.dumps({**tokenizer, "post_processor": WITH_BEGIN}))
    (folder / "template.jinja").write_text(TEMPLATE)
    flags = (
        *TOOLS,
        "--chat-template",
        str(folder / "template.jinja"),
        "--trust-request-chat-template",
        "--trust-request-mm-kwargs",
    )
    running = RealEngine(PYTHON, model, logs / "parity.log", flags=flags)
    try:
        running.start()
        running.wait()
        yield running
    finally:
        running.kill()


@pytest.fixture
async def pool(engine: RealEngine) -> AsyncIterator[LivePool]:
    """Return a pool with exact keys, whose only engine tokenizes as in a gateway."""
    entry = PoolEntry(pool_id="p", name="p", region="r", served_model=MODEL, block_tokens=BLOCK_TOKENS)
    async with aiohttp.ClientSession() as session:
        live = SimpleNamespace(
            entry=SimpleNamespace(engine_id="e"),
            breaker=SimpleNamespace(accepts=True),
            adapter=VllmAdapter(session, engine.url, served_model=MODEL),
        )
        # Patient: the tests compare tokens, not time.
        made = SimpleNamespace(entry=entry, engines={"e": live}, seed=lambda *_: SEED, one_tenant=True)
        yield cast("LivePool", made)


async def _keyed(pool: LivePool, path: str, body: dict[str, Any]) -> KeyedPrompt:
    return await PromptKeys(patience=60.0).keys(pool, "", BY_PATH[path].prompt(body))


def _tokens(engine: RealEngine, path: str, body: dict[str, Any]) -> list[int]:
    """Return the tokens that the engine makes of a request."""
    status, data = engine.post(path, {"max_tokens": 1, **body, "return_token_ids": True})
    assert status == 200, data
    first = json.loads(data[6:].splitlines()[0] if data.startswith(b"data: ") else data)
    tokens = first["prompt_token_ids"] if path == CHAT else first["choices"][0]["prompt_token_ids"]
    assert tokens
    return list(tokens)


@pytest.mark.parametrize("path", SCHEMAS)
def test_the_table_has_every_field_of_the_engines_schema(engine: RealEngine, path: str) -> None:
    schemas = json.loads(engine.get("/openapi.json")[1])["components"]["schemas"]
    assert set(schemas[SCHEMAS[path]]["properties"]) == set(FIELDS[path])


@pytest.mark.parametrize(("path", "name"), [case for case in CASES if case[1] != "prompt_embeds"])
async def test_a_field_produces_the_same_tokens_as_in_the_engine(
    engine: RealEngine, pool: LivePool, path: str, name: str
) -> None:
    wanted = FIELDS[path][name].tokens
    without, with_it = (_tokens(engine, path, body) for body in bodies_of(path, name))
    keyed = await _keyed(pool, path, bodies_of(path, name)[1])
    assert keyed.prompt_tokens == len(with_it)
    if wanted == UNKNOWN:
        assert (keyed.source, keyed.keys) == (UNMATCHED, ())
        return
    assert (without == with_it) == (wanted == SAME)
    assert keyed.source == TOKENIZED
    assert keyed.keys == token_block_keys(SEED, with_it, BLOCK_TOKENS)[: (len(with_it) - 1) // BLOCK_TOKENS]
    assert keyed.keys


async def test_the_engine_decides_on_a_prompt_of_embeddings(engine: RealEngine, pool: LivePool) -> None:
    """This engine runs without the flag for embeddings, with which vLLM renders chats differently."""
    body = bodies_of(COMPLETIONS, "prompt_embeds")[1]
    status, data = engine.post(COMPLETIONS, body)
    assert status == 400
    assert b"--enable-prompt-embeds" in data
    assert (await _keyed(pool, COMPLETIONS, body)).source == UNMATCHED


@pytest.mark.parametrize(
    ("path", "more"),
    [
        (RESPONSES, {"input": TEXT}),
        (RESPONSES, {"input": TEXT, "instructions": TEXT, "reasoning": {"effort": "high"}}),
        (RESPONSES, {"input": TEXT, "reasoning": {"effort": "none"}, "text": {"format": {"type": "json_object"}}}),
        (RESPONSES, {"input": TEXT, "tools": [{"type": "function", **TOOL["function"]}], "tool_choice": "none"}),
        (RESPONSES, {"input": TEXT, "truncation": "auto"}),
        (RESPONSES, {"input": TEXT, "documents": [{"text": TEXT}], "chat_template_kwargs": {"verbose": "very"}}),
        (
            RESPONSES,
            {
                "input": [
                    {"type": "message", "role": "user", "content": TEXT},
                    {
                        "type": "message",
                        "id": "msg_1",
                        "role": "assistant",
                        "status": "incomplete",
                        "content": [{"type": "output_text", "text": "The third", "annotations": []}],
                    },
                ]
            },
        ),
        (MESSAGES, {"system": TEXT}),
        (MESSAGES, {"output_config": {"effort": "low"}}),
        (MESSAGES, {"thinking": {"type": "adaptive"}}),
        (MESSAGES, {"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}),
        (MESSAGES, {"chat_template_kwargs": {"verbose": "very"}, "documents": [{"text": TEXT}]}),
        (
            MESSAGES,
            {
                "tools": [{"name": "drain", "input_schema": TOOL["function"]["parameters"]}],
                "tool_choice": {"type": "none"},
            },
        ),
    ],
)
async def test_responses_and_messages_have_as_many_tokens_as_in_the_engine(
    engine: RealEngine, pool: LivePool, path: str, more: dict[str, Any]
) -> None:
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    asked = {} if path == RESPONSES else {"messages": [{"role": "user", "content": TEXT}]}
    body = {"model": MODEL, limit: 1, **asked, **more}
    status, data = engine.post(path, body)
    assert status == 200, data
    keyed = await _keyed(pool, path, body)
    counted = msgspec.convert(json.loads(data)["usage"], Usage).counted_tokens
    assert (keyed.source, keyed.prompt_tokens) == (TOKENIZED, counted)


async def test_reasoning_of_earlier_turns_is_part_of_the_prompt(engine: RealEngine, pool: LivePool) -> None:
    for name in ("reasoning", "reasoning_content"):
        answered = {"role": "assistant", "content": "The third", name: TEXT}
        body = {"model": MODEL, "messages": [*BODIES[CHAT]["messages"], answered, {"role": "user", "content": "Why?"}]}
        assert (await _keyed(pool, CHAT, body)).prompt_tokens == len(_tokens(engine, CHAT, body))


@pytest.mark.parametrize(
    "value", [2, 2.0, "2", " 2 ", "+2", "02", "2.0", "2.", True, 2.5, "2.5", "2e0", "two", "", [2]]
)
def test_the_engine_reads_a_lenient_number_like_the_gateway(engine: RealEngine, value: Any) -> None:
    status, data = engine.post(COMPLETIONS, {"model": MODEL, "prompt": TEXT, "max_tokens": value, "ignore_eos": True})
    limit = lax_int(value)
    assert status == (400 if limit is None else 200), data
    if limit is not None:
        assert json.loads(data)["usage"]["completion_tokens"] == limit


@pytest.mark.parametrize(
    "value", [True, 1, 1.0, "1", "true", "YES", "on", "t", 0, 0.0, "no", "off", 2, "maybe", "", []]
)
def test_the_engine_reads_a_lenient_flag_like_the_gateway(engine: RealEngine, value: Any) -> None:
    status, data = engine.post(COMPLETIONS, {"model": MODEL, "prompt": TEXT, "max_tokens": 1, "stream": value})
    flag = lax_flag(value)
    assert status == (400 if flag is None else 200), data
    assert data.startswith(b"data: ") == (flag is True)
    if flag:
        options = {"include_usage": value}
        body = {"model": MODEL, "prompt": TEXT, "max_tokens": 1, "stream": True, "stream_options": options}
        assert b'"usage":{' in engine.post(COMPLETIONS, body)[1]
