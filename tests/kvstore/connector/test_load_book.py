"""A load ends once: written, failed or late.

A load pays off if it ends before the tokens could be computed.
"""

from __future__ import annotations

import pytest

from kvstore.connector.domain_keys import Domain
from kvstore.connector.engine_params import KvOutcome
from kvstore.connector.load_book import LoadBook
from kvstore.connector.load_estimate import LoadEstimate
from kvstore.connector.step_messages import LoadEnd, LoadJob
from tests.kvstore.connector.engine_blocks import chain


def job(name: str = "a") -> LoadJob:
    return LoadJob(
        request_id=name,
        block_ids=(4, 5, 6),
        chain_hashes=tuple(chain("p", 3)),
        holders=(),
        domain=Domain(),
        timeout_s=1.0,
    )


def test_a_complete_load_fails_no_block() -> None:
    book, end = LoadBook(), LoadEnd(request_id="a", outcome=KvOutcome(loaded_blocks=3))
    book.begin(job(), 0.0)
    assert book.claim("a")
    book.end(end)
    assert book.take() == ([end], set())
    assert (book.take(), len(book)) == (([], set()), 0)


def test_blocks_after_the_leading_ones_count_as_failed() -> None:
    book = LoadBook()
    book.begin(job(), 0.0)
    book.claim("a")
    book.end(LoadEnd(request_id="a", outcome=KvOutcome(loaded_blocks=1, reason="missing")))
    assert book.take()[1] == {5, 6}


def test_late_blocks_are_not_written() -> None:
    book = LoadBook()
    book.begin(job(), 0.0)
    book.expire(0.9)
    assert book.take() == ([], set())
    book.expire(1.0)
    assert book.take() == ([LoadEnd(request_id="a", outcome=KvOutcome(seconds=1.0, reason="late"))], {4, 5, 6})
    assert not book.claim("a")
    book.end(LoadEnd(request_id="a", outcome=KvOutcome(loaded_blocks=3)))
    assert book.take() == ([], set())


def test_a_load_being_written_is_awaited() -> None:
    book = LoadBook()
    book.begin(job(), 0.0)
    assert book.claim("a")
    book.expire(5.0)
    assert (book.take(), len(book)) == (([], set()), 1)


def test_loads_expire_independently() -> None:
    book = LoadBook()
    book.begin(job("a"), 0.0)
    book.begin(job("b"), 0.5)
    book.expire(1.2)
    assert [item.request_id for item in book.take()[0]] == ["a"]
    assert book.is_waiting("b")


MIB = 1 << 20


def learned(token_s: float = 0.001, byte_s: float = 1e-6) -> LoadEstimate:
    estimate = LoadEstimate()
    estimate.computed(token_s)
    estimate.end("first", MIB, MIB * byte_s)
    return estimate


def test_without_measurements_an_order_is_followed() -> None:
    assert LoadEstimate().pays(16, 1 << 40)


@pytest.mark.parametrize(("size", "pays"), [(99_000, True), (101_000, False)])
def test_load_and_compute_seconds_are_compared(size: int, pays: bool) -> None:
    assert learned().pays(100, size) == pays


def test_a_load_waits_for_loads_in_progress() -> None:
    estimate = learned()
    estimate.begin("other", 60_000)
    assert not estimate.pays(100, 60_000)
    estimate.end("other", 0, 1.0)
    assert estimate.pays(100, 60_000)


def test_the_estimate_follows_measurements() -> None:
    estimate = learned()
    for _ in range(40):
        estimate.computed(0.01)
        estimate.end("slow", MIB, MIB * 1e-5)
    assert estimate.token_s == pytest.approx(0.01, rel=0.01)
    assert estimate.byte_s == pytest.approx(1e-5, rel=0.01)


def test_an_empty_load_and_a_step_without_duration_teach_nothing() -> None:
    estimate = learned()
    estimate.end("lost", 0, 5.0)
    estimate.computed(0.0)
    assert (estimate.token_s, estimate.byte_s) == (0.001, pytest.approx(1e-6))


@pytest.mark.parametrize(
    ("tokens", "max_ratio", "patience_s"),
    [(1000, 3.0, 3.0), (1000, 0.0, 10.0), (10_000, 3.0, 10.0), (1, 3.0, 0.1)],
    ids=["what computing takes", "no such limit", "at most the timeout", "at least a little"],
)
def test_no_request_waits_much_longer_for_blocks_than_their_computation_takes(
    tokens: int, max_ratio: float, patience_s: float
) -> None:
    assert learned(token_s=0.001).patience_s(tokens, 10.0, max_ratio) == pytest.approx(patience_s)
    assert LoadEstimate().patience_s(tokens, 10.0, max_ratio) == 10.0
