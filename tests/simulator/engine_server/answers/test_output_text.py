from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.engine_models.tokenizer import tokenize
from simulator.engine_server.answers.output_text import answer_text, natural_tokens


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
