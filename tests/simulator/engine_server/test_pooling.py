"""Embeddings, scores and rankings of a simulated engine."""

from __future__ import annotations

import base64

import openai
import pytest

from tests.simulator.conftest import RunningEngine


async def _post(engine: RunningEngine, path: str, **body: object) -> dict:
    async with engine.http.post(engine.url + path, json=body) as response:
        return {"status": response.status, **await response.json()}


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
