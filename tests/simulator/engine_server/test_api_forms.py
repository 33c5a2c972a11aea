"""A simulated engine serves OpenAI's responses and Anthropic's messages, over the same prompts as chat.

Embeddings, scores and rankings of a simulated engine.

Transcriptions of a simulated engine.
"""

from __future__ import annotations

import base64

import aiohttp
import anthropic
import openai
import pytest

from simulator.engine_server.api_error import EngineApiError
from simulator.engine_server.request_bodies import ChatBody, CompletionBody, chat_tokens, parse_body
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


def test_unknown_fields_are_ignored() -> None:
    body = parse_body(b'{"prompt": "x", "temperature": 0.3, "tools": [], "logit_bias": null}', CompletionBody)
    assert body.prompt == "x"


def test_max_completion_tokens_takes_precedence() -> None:
    body = parse_body(b'{"prompt": "x", "max_tokens": 3, "max_completion_tokens": 5}', CompletionBody)
    assert body.wanted_tokens == 5


def test_an_error_names_the_field() -> None:
    with pytest.raises(EngineApiError, match=r"\$\.messages\[0\]\.role") as caught:
        parse_body(b'{"messages": [{"role": 3}]}', ChatBody)
    assert caught.value.status == 400


def test_a_message_without_content_is_empty() -> None:
    body = parse_body(b'{"messages": [{"role": "assistant", "content": null}]}', ChatBody)
    assert len(chat_tokens(body.messages)) == 4


def test_lenient_json_is_read_as_real_engines_read_it() -> None:
    loose = b'{"prompt": "16", "max_tokens": "16", "stream": 1, "stream_options": {"include_usage": "true"}, "n": 1.0}'
    body = parse_body(loose, CompletionBody)
    assert (body.prompt, body.wanted_tokens, body.stream, body.wants_usage_chunk) == ("16", 16, True, True)


async def test_the_openai_client_embeds_texts_and_token_ids(engine: RunningEngine) -> None:
    async with openai.AsyncOpenAI(base_url=engine.url + "/v1", api_key="none") as client:
        answer = await client.embeddings.create(model="demo", input=["x" * 40, "y" * 8])
        again = await client.embeddings.create(model="demo", input=["x" * 40], encoding_format="float")
        ids = await client.embeddings.create(model="demo", input=[1, 2, 3])
    assert [item.index for item in answer.data] == [0, 1]
    assert answer.data[0].embedding == pytest.approx(again.data[0].embedding)
    assert answer.data[0].embedding != answer.data[1].embedding
    assert (answer.usage.prompt_tokens, ids.usage.prompt_tokens) == (12, 3)


async def test_embeddings_can_be_returned_as_base64(engine: RunningEngine) -> None:
    answer = await _post(engine, "/v1/embeddings", input="x", encoding_format="base64")
    assert len(base64.b64decode(answer["data"][0]["embedding"])) == 4 * 8


async def test_an_embedded_prompt_stays_in_the_cache(engine: RunningEngine) -> None:
    await _post(engine, "/v1/embeddings", input="x" * 400)
    answer = await _post(engine, "/v1/completions", prompt="x" * 400, max_tokens=1)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 80


@pytest.mark.parametrize("version", ["", "/v1"])
async def test_documents_are_ranked_by_their_scores(engine: RunningEngine, version: str) -> None:
    documents = ["one", "two", "three"]
    ranked = await _post(engine, version + "/rerank", query="q", documents=documents, top_n=2)
    scored = await _post(engine, version + "/score", text_1="q", text_2=documents)
    scores = [item["score"] for item in scored["data"]]
    assert [item["relevance_score"] for item in ranked["results"]] == sorted(scores, reverse=True)[:2]
    assert ranked["results"][0]["document"]["text"] == documents[ranked["results"][0]["index"]]
    assert engine.server.runtime.load == 0


async def test_lists_of_different_lengths_are_rejected(engine: RunningEngine) -> None:
    assert (await _post(engine, "/score", text_1=["a", "b"], text_2=["c"]))["status"] == 400


async def test_an_input_beyond_the_context_is_rejected(engine: RunningEngine) -> None:
    assert (await _post(engine, "/v1/embeddings", input="x" * 4 * 131_072))["status"] == 400


def form(**fields: str) -> aiohttp.FormData:
    data = aiohttp.FormData({"model": "demo", **fields})
    data.add_field("file", SOUND[1], filename=SOUND[0])
    return data


SOUND = ("speech.wav", bytes(range(256)) * 1000)


async def test_the_openai_client_transcribes_whole_and_streamed(engine: RunningEngine) -> None:
    async with openai.AsyncOpenAI(base_url=engine.url + "/v1", api_key="none") as client:
        whole = await client.audio.transcriptions.create(
            model="demo", file=SOUND, extra_body={"max_completion_tokens": 5}
        )
    assert whole.text
    assert engine.server.runtime.load == 0


@pytest.mark.parametrize(("form", "begins"), [("text", ""), ("srt", "1\n00:00"), ("vtt", "WEBVTT")])
async def test_the_response_has_the_requested_format(engine: RunningEngine, form: str, begins: str) -> None:
    async with openai.AsyncOpenAI(base_url=engine.url + "/v1", api_key="none") as client:
        text = await client.audio.transcriptions.create(model="demo", file=SOUND, response_format=form)
    assert str(text).startswith(begins)
    assert str(text)[:1] != "{"


async def test_a_stream_has_chunks_and_an_end(engine: RunningEngine) -> None:
    async with engine.http.post(engine.url + "/v1/audio/transcriptions", data=form(stream="true")) as response:
        body = await response.read()
    assert body.count(b"transcription.chunk") >= 1
    assert body.endswith(b"data: [DONE]\n\n")


async def test_a_translation_returns_the_task_translation(engine: RunningEngine) -> None:
    asked = form(response_format="verbose_json")
    async with engine.http.post(engine.url + "/v1/audio/translations", data=asked) as response:
        answer = await response.json()
    assert (answer["task"], bool(answer["text"])) == ("translation", True)


async def test_a_form_without_audio_or_with_another_model_is_rejected(engine: RunningEngine) -> None:
    async with openai.AsyncOpenAI(base_url=engine.url + "/v1", api_key="none") as client:
        with pytest.raises(openai.NotFoundError):
            await client.audio.transcriptions.create(model="nope", file=SOUND)
    async with engine.http.post(engine.url + "/v1/audio/transcriptions", data={"model": "demo"}) as response:
        assert response.status == 400
