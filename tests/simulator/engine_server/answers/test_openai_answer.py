from __future__ import annotations

import json

import pytest

from simulator.engine_server.answers.answer_shape import WholeAnswer, usage
from simulator.engine_server.answers.openai_answer import DONE, Answer


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
