from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.cost.cost_model import DecodeCost, PrefillCost
from routing.cost.cost_observer import IMPOSSIBLE, LOADED, MAX_OPEN, SHARED, TAKEN, CostObserver


def observer(**kinds: str) -> CostObserver:
    made = CostObserver(PrefillCost(), DecodeCost())
    made.set_engines({name: (kind, 1.0) for name, kind in (kinds or {"a": "", "b": ""}).items()}, {})
    return made


def serve(seen: CostObserver, name: str, engine: str = "a", *, at: float = 0.0, took: float = 0.5) -> None:
    seen.dispatched(name, engine, 4000, 0, at)
    seen.first_token(name, at + took)
    seen.completed(name, at + took + 1.0)


def test_the_time_from_dispatch_to_first_token_is_one_sample() -> None:
    seen = observer()
    serve(seen, "r1")
    assert seen.samples == {TAKEN: 1, SHARED: 0, IMPOSSIBLE: 0, LOADED: 0}
    assert seen.fitted()[""].samples == 1
    seen.check()


def test_two_prefills_on_one_engine_teach_nothing_about_either() -> None:
    seen = observer()
    seen.dispatched("r1", "a", 4000, 0, 0.0)
    seen.dispatched("r2", "a", 4000, 0, 0.1)
    for name, at in (("r1", 0.5), ("r2", 1.0)):
        seen.first_token(name, at)
        seen.completed(name, at + 1)
    assert seen.samples == {TAKEN: 0, SHARED: 2, IMPOSSIBLE: 0, LOADED: 0}


def test_prefills_on_other_engines_and_concurrent_decodes_do_not_interfere() -> None:
    seen = observer()
    seen.dispatched("other", "b", 4000, 0, 0.0)
    seen.dispatched("decoding", "a", 4000, 0, 0.0)
    seen.first_token("decoding", 0.4)
    serve(seen, "r1", at=0.5)
    assert seen.samples[TAKEN] == 1


def test_the_engines_reported_hits_count_and_not_the_predicted_ones() -> None:
    seen = observer()
    for turn in range(80):
        name = f"r{turn}"
        seen.dispatched(name, "a", 4000, 3584, turn * 10.0)
        seen.first_token(name, turn * 10.0 + PrefillCost().seconds(4000, 0))
        seen.completed(name, turn * 10.0 + 5, cached_tokens=0)
    assert seen.fitted()[""].error < 0.01


def test_impossible_measurements_are_counted() -> None:
    seen = observer()
    serve(seen, "r1", took=-0.1)
    seen.dispatched("r2", "a", 4000, 0, 0.0)
    seen.first_token("r2", 0.5)
    seen.completed("r2", 1.0, cached_tokens=9000)
    assert seen.samples == {TAKEN: 0, SHARED: 0, IMPOSSIBLE: 2, LOADED: 0}


def test_repeated_missing_or_unknown_feedback_changes_nothing() -> None:
    seen = observer()
    seen.first_token("nobody", 1.0)
    seen.completed("nobody", 1.0)
    serve(seen, "r1")
    seen.completed("r1", 9.0)
    seen.dispatched("r2", "a", 4000, 0, 0.0)
    seen.first_token("r2", 0.5)
    seen.first_token("r2", 5.0)
    seen.completed("r2", 6.0)
    assert seen.samples[TAKEN] == 2
    for number in range(MAX_OPEN + 5):
        seen.dispatched(f"lost-{number}", "a", 10, 0, float(number))
    seen.check()


def test_each_engine_kind_has_its_own_fit() -> None:
    seen = observer(a="h100", b="l4")
    for turn in range(60):
        serve(seen, f"a{turn}", "a", at=turn * 10.0, took=0.2)
        serve(seen, f"b{turn}", "b", at=turn * 10.0, took=2.0)
    fitted = seen.fitted()
    assert fitted["h100"].prefill.seconds(4000, 0) == pytest.approx(0.2, rel=0.05)
    assert fitted["l4"].prefill.seconds(4000, 0) == pytest.approx(2.0, rel=0.05)


def test_a_response_of_many_tokens_is_a_sample_of_a_decode_step() -> None:
    seen = observer()
    for turn in range(60):
        at = turn * 10.0
        seen.dispatched(f"r{turn}", "a", 4000, 0, at)
        seen.first_token(f"r{turn}", at + 0.5)
        seen.completed(f"r{turn}", at + 0.5 + 100 * 0.05, output_tokens=101)
    decode = seen.fitted()[""].decode
    assert decode is not None
    assert decode.seconds(1, 4000) == pytest.approx(0.05, rel=0.05)


@given(st.integers(0, 2**32))
def test_observer_tables_agree_after_any_sequence(seed: int) -> None:
    rng, seen = Random(seed), observer()
    for moment in range(150):
        name, now = f"r{rng.randrange(12)}", float(moment)
        kind = rng.randrange(5)
        if kind <= 1:
            seen.dispatched(name, rng.choice("abc"), rng.randrange(1, 9000), 0, now)
        elif kind == 2:
            seen.first_token(name, now)
        elif kind == 3:
            seen.completed(name, now, output_tokens=rng.choice([None, 3, 40]))
        else:
            seen.dropped(name)
        seen.check()


def test_a_handed_over_prefill_is_learned_immediately_and_its_decode_elsewhere() -> None:
    seen = observer(a="prefilling", b="decoding")
    seen.dispatched("r1", "a", 4000, 0, 0.0)
    seen.handed_over("r1", "b", 0.5, 0)
    seen.handed_over("r1", "b", 9.0, 0)
    seen.check()
    assert seen.samples[TAKEN] == 1
    seen.dispatched("r2", "a", 4000, 0, 0.6)
    assert seen.samples[SHARED] == 0, "the engine is free again"
    seen.first_token("r1", 0.9)
    seen.completed("r1", 0.9 + 0.02 * 99, cached_tokens=0, output_tokens=100)
    seen.dropped("r2")
    seen.check()
    assert seen.samples == {TAKEN: 1, SHARED: 0, IMPOSSIBLE: 0, LOADED: 0}


def test_a_request_that_ends_between_its_engines_leaves_no_state() -> None:
    seen = observer()
    seen.dispatched("r1", "a", 4000, 0, 0.0)
    seen.handed_over("r1", "b", 0.5)
    seen.dropped("r1")
    seen.handed_over("r1", "b", 0.5)
    seen.check()
