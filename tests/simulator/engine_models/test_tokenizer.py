from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine_models.tokenizer import UnknownRoleError, render_chat, tokenize

_TEXT = st.text(st.characters(codec="utf-8"), max_size=200)


def test_four_bytes_are_one_little_endian_token() -> None:
    assert tokenize("abcde").tolist() == [int.from_bytes(b"abcd", "little"), ord("e")]


def test_an_empty_text_has_no_tokens() -> None:
    assert len(tokenize("")) == 0


@given(_TEXT, _TEXT)
def test_prompts_share_tokens_where_they_share_text(left: str, right: str) -> None:
    whole = len(left.encode()) // 4
    assert tokenize(left)[:whole] == tokenize(left + right)[:whole]


@given(st.lists(_TEXT, min_size=1, max_size=4), _TEXT)
def test_a_longer_conversation_starts_with_the_shorter_one(turns: list[str], answer: str) -> None:
    asked = [("user", turn) for turn in turns]
    short = render_chat(asked)
    assert render_chat([*asked, ("assistant", answer), ("user", "more")]).startswith(short)


def test_every_header_is_two_tokens() -> None:
    for role in ("system", "developer", "user", "assistant", "tool", "function"):
        assert len(render_chat([(role, "")]).encode()) == 16


def test_an_unknown_role_lists_the_known_ones() -> None:
    with pytest.raises(UnknownRoleError, match="assistant"):
        render_chat([("wizard", "hi")])


def test_a_lone_surrogate_is_rejected() -> None:
    with pytest.raises(UnicodeEncodeError):
        tokenize("\ud800")
