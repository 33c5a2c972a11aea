"""Transcriptions of a simulated engine."""

from __future__ import annotations

import aiohttp
import openai
import pytest

from tests.simulator.conftest import RunningEngine


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
