import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.cost.cost_model import PrefillCost


def test_the_reference_prompt_costs_as_documented_in_the_model_notes() -> None:
    cost = PrefillCost()
    assert cost.seconds(9_585, 0) == pytest.approx(0.87, abs=0.005)
    assert cost.seconds(20_480, 0) == pytest.approx(2.07, abs=0.005)


def test_a_full_hit_still_computes_its_last_token() -> None:
    assert PrefillCost().seconds(1_000, 1_000) > PrefillCost().base_s


@given(st.integers(1, 200_000), st.data())
def test_more_hits_never_cost_more(prompt_tokens: int, data: st.DataObject) -> None:
    few = data.draw(st.integers(0, prompt_tokens - 1))
    many = data.draw(st.integers(few, prompt_tokens - 1))
    assert PrefillCost().seconds(prompt_tokens, many) <= PrefillCost().seconds(prompt_tokens, few) + 1e-9
