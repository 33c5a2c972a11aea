"""The decode engine: lowest expected time between tokens, after memory and before the prompt's tie-break."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routing.cost.cost_model import DecodeCost
from routing.pd.decode_choice import ASSUMED_OUTPUT_TOKENS, DecodeLoad, choose_decoder, need_tokens
from routing.values import reasons

COST = DecodeCost(base_s=0.01, per_sequence_s=0.001, per_context_token_s=1e-6)


def load(target: int, batch: float = 0, context: float = 0, room: int | None = None, **cost: float) -> DecodeLoad:
    return DecodeLoad(target, f"d{target}", batch, context, room, DecodeCost(**cost) if cost else COST)


def test_the_request_itself_is_included_in_the_batch() -> None:
    choice = choose_decoder([load(0, 2, 1000)], 500, 600, 0)
    assert choice.reason == reasons.ONLY_DECODER
    assert (choice.candidates[0].batch, choice.candidates[0].context_tokens) == (3, 1500)
    assert choice.candidates[0].tpot_s == COST.seconds(3, 1500)


def test_long_contexts_weigh_like_many_requests() -> None:
    choice = choose_decoder([load(0, 1, 50_000), load(1, 20, 2_000)], 100, 100, 0)
    assert (choice.target, choice.reason) == (1, reasons.LEAST_TPOT)


def test_a_faster_engine_gets_more_requests() -> None:
    fast = load(1, 9, 0, base_s=0.001, per_sequence_s=0.0001, per_context_token_s=1e-7)
    assert choose_decoder([load(0), fast], 100, 100, 0).target == 1


def test_memory_is_considered_before_speed() -> None:
    choice = choose_decoder([load(0, 0, 0, room=10), load(1, 9, 9000, room=5000)], 100, 100, 0)
    assert choice.target == 1
    assert [candidate.fits for candidate in choice.candidates] == [True, False]


def test_if_nothing_fits_the_engine_with_most_room_is_chosen() -> None:
    choice = choose_decoder([load(0, 0, 0, room=10), load(1, 9, 9000, room=50)], 100, 100, 0)
    assert (choice.target, choice.reason) == (1, reasons.MOST_ROOM)


def test_ties_are_broken_differently_by_prompt() -> None:
    loads = [load(target) for target in range(4)]
    assert {choose_decoder(loads, 100, 100, salt).target for salt in range(4)} == {0, 1, 2, 3}


def test_memory_is_reserved_for_a_response_of_usual_length() -> None:
    assert need_tokens(100, 0) == 100 + ASSUMED_OUTPUT_TOKENS
    assert need_tokens(100, 7) == 107
    assert need_tokens(100, 10**9) == 100 + ASSUMED_OUTPUT_TOKENS


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(0, 10**6), st.none() | st.integers(0, 10**6)),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 0xFFFF),
)
def test_no_engine_with_enough_memory_is_faster_than_the_chosen_one(
    rows: list[tuple[int, int, int | None]], salt: int
) -> None:
    loads = [load(target, *row) for target, row in enumerate(rows)]
    choice = choose_decoder(loads, 1000, 1500, salt)
    best = choice.candidates[0]
    assert best.engine_id == f"d{choice.target}"
    fitting = [item for item in loads if item.room_tokens is None or item.room_tokens >= 1500]
    assert best.fits == bool(fitting)
    for item in fitting:
        assert best.tpot_s <= COST.seconds(item.batch + 1, item.context_tokens + 1000)
    assert choose_decoder(loads, 1000, 1500, salt) == choice


def test_several_choices_share_the_memory_of_their_prompt() -> None:
    assert need_tokens(100, 50, 3) == 250
    assert need_tokens(100, 50, 0) == 100
