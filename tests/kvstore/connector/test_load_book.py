"""A load ends once: written, failed or late."""

from __future__ import annotations

from kvstore.connector.domain_keys import Domain
from kvstore.connector.engine_params import KvOutcome
from kvstore.connector.load_book import LoadBook
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
