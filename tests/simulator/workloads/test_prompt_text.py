from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvstore.keys.block_keys import token_block_keys
from simulator.engine_models.tokenizer import render_chat, tokenize
from simulator.workloads.prompt_text import BLOCK_BYTES, prompt_text
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow


def _row(ids: list[int], length: int | None = None) -> TraceRow:
    return TraceRow(0, BLOCK_TOKENS * len(ids) if length is None else length, 1, tuple(ids))


def _shared(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


_IDS = st.lists(st.integers(0, 3), min_size=1, max_size=6)


@given(_IDS, _IDS)
@settings(max_examples=60)
def test_blocks_are_shared_exactly_as_far_as_ids_agree(left: list[int], right: list[int]) -> None:
    def keys(ids: list[int], number: int, *, chat: bool) -> tuple[int, ...]:
        text = prompt_text(_row(ids), number)
        return token_block_keys(1, tokenize(render_chat([("user", text)]) if chat else text), BLOCK_TOKENS)

    expected = _shared(tuple(left), tuple(right))
    for chat in (False, True):
        assert _shared(keys(left, 0, chat=chat), keys(right, 1, chat=chat)) == expected


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_a_prompt_has_exactly_its_tokens(length: int, limit: int) -> None:
    row = _row(list(range(-(-length // BLOCK_TOKENS))), length)
    assert len(tokenize(prompt_text(row, 0))) == length
    assert len(tokenize(prompt_text(row, 0, max_tokens=limit))) == min(length, limit)


def test_a_shorter_limit_truncates_the_end() -> None:
    row = _row([1, 2, 3])
    assert prompt_text(row, 0).startswith(prompt_text(row, 0, max_tokens=700))


def test_text_is_readable_ascii() -> None:
    text = prompt_text(_row([10**12]), 0)
    assert text.isascii()
    assert text.isprintable()
    assert len(text) == BLOCK_BYTES


def test_editions_share_no_text() -> None:
    assert prompt_text(_row([1]), 0)[:32] != prompt_text(_row([1]), 0, edition="1.")[:32]


def test_blocks_without_an_id_differ_between_rows() -> None:
    row = _row([1], 3 * BLOCK_TOKENS)
    first, second = prompt_text(row, 0), prompt_text(row, 1)
    assert first[:BLOCK_BYTES] == second[:BLOCK_BYTES]
    assert first[BLOCK_BYTES : BLOCK_BYTES + 64] != second[BLOCK_BYTES : BLOCK_BYTES + 64]


def test_surplus_ids_do_not_affect_the_text() -> None:
    assert prompt_text(_row([1, 2, 3], BLOCK_TOKENS), 0) == prompt_text(_row([1], BLOCK_TOKENS), 0)
