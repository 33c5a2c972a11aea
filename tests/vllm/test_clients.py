"""The OpenAI and Anthropic clients in front of real engines: generating endpoints, with hits as predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.vllm.attached import PATIENCE_S, Headway, words
from tests.vllm.real_engine import BLOCK_TOKENS, MODEL

pytestmark = pytest.mark.vllm
RETRIES = 20
"""A busy gateway rejects with Retry-After, which both clients obey."""


@pytest.fixture(scope="module")
def client(headway: Headway) -> Iterator[openai.OpenAI]:
    options: dict[str, Any] = {"timeout": PATIENCE_S, "max_retries": RETRIES}
    with openai.OpenAI(base_url=f"{headway.url}/v1", api_key=headway.key, **options) as client:
        yield client


@pytest.fixture(scope="module")
def claude(headway: Headway) -> Iterator[anthropic.Anthropic]:
    options: dict[str, Any] = {"timeout": PATIENCE_S, "max_retries": RETRIES}
    with anthropic.Anthropic(base_url=headway.url, api_key=headway.key, **options) as client:
        yield client


def _hits(headway: Headway, ask: Callable[[], Any], cached: Callable[[Any], int]) -> None:
    """Send a request twice, and check that the cached tokens of each response equal its decision's prediction."""
    hits = []
    for _ in range(2):
        headway.settle()
        raw = ask()
        decided = headway.call(f"/api/v1/explain/{raw.headers['x-headway-decision']}")[1]["decision"]
        hits.append(cached(raw.parse()))
        assert decided["hit_tokens"] == hits[-1]
    assert hits[0] < BLOCK_TOKENS * 2 < hits[1]


def test_chat_completions_hit_as_predicted(client: openai.OpenAI, headway: Headway) -> None:
    create = client.chat.completions.with_raw_response.create
    messages: Any = [{"role": "user", "content": words(200, "client chat")}]

    def cached(answer: Any) -> int:
        details = answer.usage.prompt_tokens_details
        return int((details.cached_tokens if details else 0) or 0)

    _hits(headway, lambda: create(model=MODEL, messages=messages, max_tokens=4), cached)
    stream = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=6, stream=True)
    chunks = list(stream)
    assert sum(bool(chunk.choices) for chunk in chunks) > 1
    assert all(chunk.usage is None for chunk in chunks)


def test_completions_hit_as_predicted(client: openai.OpenAI) -> None:
    whole = client.completions.create(model=MODEL, prompt=words(60, "client text"), max_tokens=6, temperature=0)
    stream = client.completions.create(
        model=MODEL, prompt=words(60, "client text"), max_tokens=6, temperature=0, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == whole.choices[0].text


def test_responses_hit_as_predicted(client: openai.OpenAI, headway: Headway) -> None:
    create = client.responses.with_raw_response.create
    asked: Any = {"model": MODEL, "input": words(200, "client response"), "instructions": "Be brief."}
    asked["max_output_tokens"] = 4
    _hits(headway, lambda: create(**asked), lambda answer: answer.usage.input_tokens_details.cached_tokens)
    with client.responses.stream(**asked) as stream:
        kinds = [event.type for event in stream]
    assert kinds[0] == "response.created"
    assert "response.output_text.delta" in kinds
    assert kinds[-1] in ("response.completed", "response.incomplete")


def test_messages_hit_as_predicted(claude: anthropic.Anthropic, headway: Headway) -> None:
    create = claude.messages.with_raw_response.create
    turns: Any = [{"role": "user", "content": words(200, "client message")}]
    asked: Any = {"model": MODEL, "system": "Be brief.", "messages": turns, "max_tokens": 4}
    _hits(headway, lambda: create(**asked), lambda answer: answer.usage.cache_read_input_tokens or 0)
    with claude.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream)
        assert stream.get_final_message().usage.output_tokens > 0
    assert claude.messages.count_tokens(model=MODEL, messages=turns).input_tokens > 200


def test_tokens_are_counted_and_models_listed(client: openai.OpenAI, headway: Headway) -> None:
    text = words(30, "client tokens")
    status, answer, _ = headway.call("/tokenize", {"model": MODEL, "prompt": text})
    assert (status, answer["count"]) == (200, len(answer["tokens"]))
    status, back, _ = headway.call("/detokenize", {"model": MODEL, "tokens": answer["tokens"]})
    assert (status, back["prompt"]) == (200, text)
    assert MODEL in [model.id for model in client.models.list()]


def test_each_client_raises_its_own_errors(client: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    long = words(4000, "too long")
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=MODEL, prompt=long, max_tokens=2)
    with pytest.raises(openai.NotFoundError, match="No pool serves this model"):
        client.responses.create(model="nobody", input="x")
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.create(model=MODEL, max_tokens=2, messages=[{"role": "user", "content": long}])
