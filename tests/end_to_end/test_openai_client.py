"""The OpenAI and Anthropic clients against a gateway process in front of simulated-engine processes.

Importing a client takes seconds, so tests import it and collection does not.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.live.live_fleet import API_KEY, MODEL, LiveFleet, live_fleet
from routing.policy.policy_document import RoutingPolicy
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.processes

QUESTION = "Which engine holds my prefix? " * 200


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFleet]:
    state_dir: Path = tmp_path_factory.mktemp("state")
    with live_fleet(state_dir, RoutingPolicy(), engines=2, time_scale=10.0, block_tokens=64, num_blocks=500) as running:
        yield running


@pytest.fixture(scope="module")
def client(fleet: LiveFleet) -> Iterator[openai.OpenAI]:
    import openai

    with openai.OpenAI(base_url=f"{fleet.url}/v1", api_key=API_KEY, max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, text: str, tokens: int = 4) -> tuple[str, int]:
    """Return the decision's id and the cached tokens that the engine reports."""
    answer = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=[{"role": "user", "content": text}], max_tokens=tokens
    )
    usage = answer.parse().usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    return answer.headers["x-headway-decision"], usage.prompt_tokens_details.cached_tokens or 0


def test_stream_has_text_and_the_requested_usage(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=12,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12


def test_stream_without_requested_usage_has_none(client: openai.OpenAI) -> None:
    stream = client.completions.create(model=MODEL, prompt="Say something.", max_tokens=3, stream=True)
    assert all(chunk.usage is None for chunk in stream)


def test_repeated_prompt_hits_its_cache_and_its_decision_is_explained(client: openai.OpenAI, fleet: LiveFleet) -> None:
    prompt = "A prompt nobody sent before. " * 200
    assert ask(client, prompt)[1] == 0
    until = time.monotonic() + PATIENCE_S
    while (asked := ask(client, prompt))[1] <= 1000:
        assert time.monotonic() < until, "the same prompt meets its cache"
    decision_id = asked[0]
    explained = client.get(f"{fleet.url}/api/v1/explain/{decision_id}", cast_to=dict[str, object])
    assert str(decision_id) in str(explained)
    assert "least_cost" in str(explained)


def test_unknown_model_and_wrong_key_raise_different_errors(client: openai.OpenAI, fleet: LiveFleet) -> None:
    import openai

    with pytest.raises(openai.NotFoundError, match="No pool serves this model"):
        client.completions.create(model="nobody-8b", prompt="x")
    stranger = openai.OpenAI(base_url=f"{fleet.url}/v1", api_key="hw_wrong", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.completions.create(model=MODEL, prompt="x")


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]


def outcome(client: openai.OpenAI, fleet: LiveFleet, decision_id: str) -> tuple[int, int | None]:
    """Return the predicted cached tokens, and those that the engine reported."""
    explained: dict[str, dict[str, int]] = client.get(f"{fleet.url}/api/v1/explain/{decision_id}", cast_to=dict)  # type: ignore[type-arg]
    return explained["decision"]["hit_tokens"], explained["outcome"]["cached_tokens"]


def repeat_until_hit(
    client: openai.OpenAI, fleet: LiveFleet, ask_once: Callable[[], Any], *, engine_reports: bool = True
) -> Any:
    """Return the first response with a predicted hit, and assert that the engine reported the same number.

    This is usually the second answer. On a busy machine, an engine that answers late may get no work for a moment,
    and the cache of the other one is empty.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        answer = ask_once()
        expected, reported = outcome(client, fleet, answer.headers["x-headway-decision"])
        if expected:
            assert not engine_reports or expected == reported
            assert expected > 900
            return answer.parse()
        assert time.monotonic() < until, "the same prompt meets its cache"


def test_response_has_the_predicted_hit(client: openai.OpenAI, fleet: LiveFleet) -> None:
    items = [{"role": "user", "content": [{"type": "input_text", "text": "A response to this. " * 200}]}]
    create = client.responses.with_raw_response.create
    asked = {"model": MODEL, "instructions": "Be brief.", "input": items, "max_output_tokens": 4}
    repeat_until_hit(client, fleet, lambda: create(**asked))  # type: ignore[call-overload]


def test_response_streams_its_events(client: openai.OpenAI) -> None:
    with client.responses.stream(model=MODEL, input=QUESTION, max_output_tokens=6) as stream:
        kinds = [event.type for event in stream]
    assert kinds[0] == "response.created"
    assert "response.output_text.delta" in kinds
    assert kinds[-1] == "response.incomplete"


def test_message_has_the_predicted_hit(client: openai.OpenAI, fleet: LiveFleet) -> None:
    import anthropic

    with anthropic.Anthropic(base_url=fleet.url, api_key=API_KEY, max_retries=0) as claude:
        create = claude.messages.with_raw_response.create
        turns = [{"role": "user", "content": "A message like this. " * 200}]
        asked = {"model": MODEL, "system": "Be brief.", "messages": turns, "max_tokens": 4}
        message = repeat_until_hit(client, fleet, lambda: create(**asked))  # type: ignore[call-overload]
        assert message.usage.cache_read_input_tokens


def test_anthropic_client_streams_messages_and_raises_its_own_errors(fleet: LiveFleet) -> None:
    import anthropic

    asked = {"model": MODEL, "max_tokens": 6, "messages": [{"role": "user", "content": QUESTION}]}
    with anthropic.Anthropic(base_url=fleet.url, api_key=API_KEY, max_retries=0) as claude:
        with claude.messages.stream(**asked) as stream:  # type: ignore[arg-type]
            assert "".join(stream.text_stream)
            assert stream.get_final_message().usage.output_tokens == 6
        assert claude.messages.count_tokens(model=MODEL, messages=asked["messages"]).input_tokens > 1000  # type: ignore[arg-type]
        with pytest.raises(anthropic.NotFoundError, match="No pool serves this model"):
            claude.messages.create(**{**asked, "model": "nobody-8b"})  # type: ignore[call-overload]
    stranger = anthropic.Anthropic(base_url=fleet.url, api_key="hw_wrong", max_retries=0)
    with stranger, pytest.raises(anthropic.AuthenticationError):
        stranger.messages.create(**asked)  # type: ignore[call-overload]


def test_embeddings_hit_their_cached_prefix(client: openai.OpenAI, fleet: LiveFleet) -> None:
    text = "Embed this once more. " * 200
    create = client.embeddings.with_raw_response.create
    ask_once = functools.partial(create, model=MODEL, input=[text, "short"])
    answer = repeat_until_hit(client, fleet, ask_once, engine_reports=False)
    assert len(answer.data) == 2
