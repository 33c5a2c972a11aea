from random import Random

from hypothesis import given
from hypothesis import strategies as st

from routing.ledger.decode_ledger import DecodeBook


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
