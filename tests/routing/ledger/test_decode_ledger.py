"""Engines whose decodes fill their memory (DualMap A.8), with hand-computed values."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.ledger.decode_ledger import DecodeBook
from routing.router import Router
from routing.values.observation import FirstToken
from tests.routing.pools import pool, request


def test_current_and_future_decodes_are_counted() -> None:
    book = DecodeBook()
    for number, at in enumerate((1.0, 2.0, 3.0)):
        book.begin(f"r{number}", 0, 1000 * (number + 1), at)
    assert book.decoding(0) == 3
    assert book.decoding_after(0, 1.0) == 2
    assert book.decoding_after(0, 3.0) == 0
    book.end("r1", 4.0, finished=True)
    assert book.decoding(0) == 2


def test_the_decode_time_is_the_mean_of_finished_decodes() -> None:
    book = DecodeBook()
    book.begin("a", 0, 100, 0.0)
    book.begin("b", 0, 100, 0.0)
    book.end("a", 4.0, finished=True)
    assert book.decode_s == 4.0
    book.end("b", 100.0, finished=False)
    assert book.decode_s == 4.0


def test_repeated_and_unknown_ends_change_nothing() -> None:
    book = DecodeBook()
    book.end("nobody", 1.0, finished=True)
    book.begin("a", 0, 100, 1.0)
    book.begin("a", 1, 100, 2.0)
    assert (book.decoding(0), book.decoding(1)) == (1, 0)
    book.end("a", 3.0, finished=True)
    book.end("a", 4.0, finished=True)
    assert len(book) == 0
    assert book.decode_s == 2.0


def test_a_removed_target_takes_its_decodes_with_it() -> None:
    book = DecodeBook()
    book.begin("a", 0, 100, 1.0)
    book.begin("b", 1, 100, 1.0)
    book.forget_target(0)
    book.end("a", 2.0, finished=True)
    assert (len(book), book.decoding(1)) == (1, 1)
    book.check()


@given(st.integers(0, 2**32))
def test_the_tables_agree_after_any_sequence(seed: int) -> None:
    rng, book = Random(seed), DecodeBook()
    for moment in range(120):
        name = f"r{rng.randrange(30)}"
        kind = rng.random()
        if kind < 0.55:
            book.begin(name, rng.randrange(3), rng.randrange(20_000), float(moment))
        elif kind < 0.95:
            book.end(name, float(moment), finished=rng.random() < 0.5)
        else:
            book.forget_target(rng.randrange(3))
        book.check()
        assert book.decode_s >= 0


def test_several_choices_of_one_prompt_count_separately_and_end_together() -> None:
    book = DecodeBook()
    book.begin("several", 0, 100, 1.0, 3)
    book.begin("none", 0, 100, 1.0, 0)
    book.begin("one", 0, 100, 2.0)
    book.check()
    assert (book.decoding(0), book.decoding_after(0, 1.0), len(book)) == (4, 1, 2)
    book.end("several", 3.0, finished=True)
    book.check()
    assert book.decoding(0) == 1


def stuck(*, usage: float | None = 1.0, after_s: float = 3.0) -> tuple[Router, int]:
    """Return an engine with a prefill dispatched at 0 s that is expected to take 0.93 s."""
    router = pool(size=1, prefill_window_tokens=1, lookahead_s=0.0, bottleneck_s=after_s)
    target = router.fleet.known_target("e-01")
    if usage is not None:
        router.note_memory("e-01", usage)
    router.place(request(1, range(20)), 0.0)
    return router, target


def test_an_engine_without_a_first_token_is_expected_to_stay_delayed_as_long_as_since_its_detection() -> None:
    router, target = stuck()
    for now, delay_s in ((2.7, 0.0), (3.0, 0.0), (4.4, 0.0), (4.7, 1.7), (7.0, 4.0)):
        router.tick(now)
        assert router.reservations.delay_s(target) == pytest.approx(delay_s)
    router.check()


@pytest.mark.parametrize(("rest_s", "delay_s"), [(1.0, 0.0), (2.0, 2.0)])
def test_the_delay_of_a_new_wait_is_the_mean_rest_of_earlier_ones_unless_that_is_short(
    rest_s: float, delay_s: float
) -> None:
    router, target = stuck()
    for number in range(1, 41):
        start = 100.0 * number
        router.observe(FirstToken(f"request-{number:08}"), start - 97.0 + rest_s)
        router.place(request(number + 1, range(20), at=start), start)
        router.tick(start + 3.0)
    assert router.reservations.delay_s(target) == pytest.approx(delay_s, rel=0.02)
    router.check()


def test_new_requests_do_not_see_the_delay() -> None:
    router, target = stuck()
    other, _ = stuck(after_s=0.0)
    for now in (3.0, 9.0):
        router.tick(now)
        other.tick(now)
    assert router.reservations.delay_s(target) == 6.0
    assert router.view.wait_s(target, 9.0) == other.view.wait_s(target, 9.0)


@pytest.mark.parametrize("usage", [0.2, 0.84])
def test_an_engine_with_free_memory_is_slow_but_not_delayed(usage: float) -> None:
    router, target = stuck(usage=usage)
    for now in (2.7, 3.0, 6.0):
        router.tick(now)
    assert router.reservations.delay_s(target) == 0.0


def test_an_engine_without_a_report_counts_as_full() -> None:
    router, target = stuck(usage=None)
    router.tick(3.0)
    router.tick(5.0)
    assert router.reservations.delay_s(target) == pytest.approx(2.0)


def test_a_first_token_ends_the_expected_delay() -> None:
    router, target = stuck()
    router.tick(3.0)
    router.tick(5.0)
    router.observe(FirstToken("request-00000001"), 5.1)
    assert router.reservations.delay_s(target) == 0.0


def test_an_idle_engine_is_not_delayed_by_its_past() -> None:
    router, target = stuck()
    router.observe(FirstToken("request-00000001"), 1.0)
    router.place(request(2, range(100, 120), at=60.0), 60.0)
    router.tick(61.0)
    router.tick(62.9)
    assert router.reservations.delay_s(target) == 0.0


def test_a_disabled_bottleneck_changes_nothing() -> None:
    router, target = stuck(after_s=0.0)
    router.tick(4.0)
    router.tick(9.0)
    assert router.reservations.delay_s(target) == 0.0


@pytest.mark.parametrize("usage", [float("nan"), -1.0, 7.0])
def test_impossible_readings_are_ignored(usage: float) -> None:
    router, target = stuck(usage=0.1)
    router.note_memory("e-01", usage)
    router.note_memory("nobody", 1.0)
    router.tick(4.0)
    router.tick(9.0)
    assert router.reservations.delay_s(target) == 0.0


def test_enabling_the_bottleneck_by_policy_takes_effect() -> None:
    router, target = stuck(after_s=0.0)
    router.tick(4.0)
    router.set_policy(msgspec.structs.replace(router.policy, bottleneck_s=3.0), 2, 4.1)
    router.tick(4.2)
    router.tick(6.0)
    assert router.reservations.delay_s(target) == pytest.approx(1.8)
