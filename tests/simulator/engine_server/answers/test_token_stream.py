from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine_models.tokenizer import tokenize
from simulator.engine_server.answers.answer_shape import WholeAnswer, usage
from simulator.engine_server.answers.openai_answer import DONE, Answer
from simulator.engine_server.answers.token_stream import TokenStream, answer_text, natural_tokens


async def test_the_first_token_is_forwarded_immediately() -> None:
    stream = TokenStream("a", 8)
    reader = asyncio.create_task(stream.burst())
    await asyncio.sleep(0)
    stream.add_token()
    assert await reader == (0, 1)


async def test_later_tokens_arrive_in_bursts_of_the_interval() -> None:
    stream = TokenStream("a", 3)
    stream.add_token()
    assert await stream.burst() == (0, 1)
    reader = asyncio.create_task(stream.burst())
    for _ in range(2):
        stream.add_token()
        await asyncio.sleep(0)
    assert not reader.done()
    stream.add_token()
    assert await reader == (1, 4)


async def test_the_end_returns_the_remaining_tokens_and_then_nothing() -> None:
    stream = TokenStream("a", 5)
    for _ in range(3):
        stream.add_token()
    stream.finish()
    assert await stream.burst() == (0, 3)
    assert await stream.burst() is None


async def test_a_broken_stream_ends_without_its_remaining_tokens() -> None:
    stream = TokenStream("a", 1)
    reader = asyncio.create_task(stream.burst())
    await asyncio.sleep(0)
    stream.break_off()
    assert await reader is None
    stream.add_token()
    assert await stream.burst() is None


async def test_a_cancelled_reader_does_not_stop_the_engine() -> None:
    stream = TokenStream("a", 1)
    reader = asyncio.create_task(stream.burst())
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    stream.add_token()
    assert await stream.burst() == (0, 1)


def _chunk(data: bytes) -> dict:
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    return json.loads(data[6:])


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("answer_id", ["cmpl-1", 'quote"\\', "\x00", "\\u0000"])
def test_a_fast_built_chunk_equals_a_slowly_built_one_for_any_id(chat: bool, answer_id: str) -> None:
    answer = Answer(answer_id, "mo\x00del", 7, chat=chat)
    ending = answer.ending('te"xt', WholeAnswer('te"xt', "length", {}), with_usage=False)
    piece, last = _chunk(answer.piece('te"xt')), _chunk(ending.removesuffix(DONE))
    last["choices"][0]["finish_reason"] = None
    assert piece == last
    assert piece["id"] == answer_id


def test_usage_reports_cached_tokens() -> None:
    counts = usage(10, 4, 8)
    assert counts["total_tokens"] == 14
    assert counts["prompt_tokens_details"]["cached_tokens"] == 8


def test_only_a_chat_begins_with_a_role() -> None:
    assert Answer("a", "m", 0, chat=False).opening() == b""
    assert _chunk(Answer("a", "m", 0, chat=True).opening())["choices"][0]["delta"]["role"] == "assistant"


@given(st.integers(0, 2**32 - 1), st.integers(0, 500), st.integers(0, 50))
def test_a_token_is_four_ascii_bytes(seed: int, first: int, count: int) -> None:
    text = answer_text(seed, first, first + count)
    assert text.isascii()
    assert len(tokenize(text)) == count


@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_bursts_concatenate_to_the_same_response(seed: int, cut: int) -> None:
    assert answer_text(seed, 0, cut) + answer_text(seed, cut, 60) == answer_text(seed, 0, max(cut, 60))


def test_different_prompts_get_different_responses() -> None:
    assert answer_text(1, 0, 20) != answer_text(2, 0, 20)


def test_natural_lengths_repeat_and_spread_around_350_tokens() -> None:
    lengths = sorted(natural_tokens(seed) for seed in range(400))
    assert natural_tokens(5) == natural_tokens(5)
    assert 300 < lengths[200] < 400
    assert lengths[0] >= 8
    assert lengths[-1] <= 2000
