"""A simulated engine serves OpenAI's responses and Anthropic's messages, over the same prompts as chat."""

from __future__ import annotations

import anthropic
import openai
import pytest

from tests.simulator.conftest import RunningEngine


async def _post(engine: RunningEngine, path: str, **body: object) -> dict:
    async with engine.http.post(engine.url + path, json=body) as response:
        return {"status": response.status, **await response.json()}


async def test_the_openai_client_streams_a_response(engine: RunningEngine) -> None:
    async with openai.AsyncOpenAI(base_url=engine.url + "/v1", api_key="none") as client:
        async with client.responses.stream(model="demo", input="x" * 400, max_output_tokens=9) as stream:
            kinds = [event.type async for event in stream]
        whole = await client.responses.create(model="demo", input="x" * 400, max_output_tokens=9)
    assert kinds[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert kinds[-1] == "response.incomplete"
    assert len(whole.output_text) == 9 * 4
    assert whole.usage is not None
    assert whole.usage.input_tokens_details.cached_tokens > 0


async def test_the_anthropic_client_streams_a_message(engine: RunningEngine) -> None:
    async with anthropic.AsyncAnthropic(base_url=engine.url, api_key="none") as client:
        asked = {"model": "demo", "max_tokens": 9, "messages": [{"role": "user", "content": "x" * 400}]}
        async with client.messages.stream(**asked) as stream:
            text = "".join([item async for item in stream.text_stream])
            message = await stream.get_final_message()
        whole = await client.messages.create(**asked)
        counted = await client.messages.count_tokens(model="demo", messages=asked["messages"])
    assert len(text) == 9 * 4
    assert whole.content[0].text == text
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 9)
    assert whole.usage.cache_read_input_tokens > 0
    assert whole.usage.input_tokens + whole.usage.cache_read_input_tokens == counted.input_tokens


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "hi", "instructions": "Be brief."}),
        (
            "/v1/responses",
            {
                "input": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                ]
            },
        ),
        ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "system": "Be brief.", "max_tokens": 1}),
    ],
)
async def test_equivalent_prompts_of_all_apis_share_their_cache(engine: RunningEngine, path: str, body: dict) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    tokens = await _post(engine, "/tokenize", messages=chat)
    usage = (await _post(engine, path, **body))["usage"]
    assert usage["input_tokens"] == tokens["count"]


async def test_tool_calls_and_their_results_are_turns(engine: RunningEngine) -> None:
    items = [
        {"role": "user", "content": "weather?"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "rain"},
    ]
    chat = [{"role": "user", "content": "weather?"}, {"role": "assistant"}, {"role": "tool", "content": "rain"}]
    tokens = await _post(engine, "/tokenize", messages=chat)
    answer = await _post(engine, "/v1/responses", input=items, max_output_tokens=1)
    assert answer["usage"]["input_tokens"] == tokens["count"]
    blocks = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "rain"}]},
    ]
    assert (await _post(engine, "/v1/messages/count_tokens", messages=blocks))["input_tokens"] == tokens["count"]


async def test_token_ids_are_converted_back_to_text(engine: RunningEngine) -> None:
    tokens = (await _post(engine, "/tokenize", prompt="Grüße"))["tokens"]
    assert (await _post(engine, "/detokenize", tokens=tokens))["prompt"] == "Grüße"


async def test_errors_at_anthropic_paths_have_its_format(engine: RunningEngine) -> None:
    answer = await _post(engine, "/v1/messages", messages=[], max_tokens=1)
    assert (answer["status"], answer["type"]) == (400, "error")
