from __future__ import annotations

import pytest

from kvstore.transfer.client_links import MAX_LINKS, ClientLinks


def test_bytes_are_counted_by_name_and_direction() -> None:
    links = ClientLinks()
    links.sent("a", 1000, 0.1)
    links.received("a", 7)
    links.received("b", 5)
    found = {name: (link.sent_bytes, link.received_bytes) for name, link in links.links().items()}
    assert found == {"a": (1000, 7), "b": (0, 5)}


def test_a_rate_is_learned_from_large_transfers_alone() -> None:
    links = ClientLinks()
    links.sent("a", 1000, 0.0001)
    assert links.links()["a"].bytes_per_s == 0.0
    for _ in range(50):
        links.sent("a", 1 << 20, 0.01)
    assert links.links()["a"].bytes_per_s == pytest.approx((1 << 20) / 0.01, rel=0.2)


def test_the_first_client_leaves_for_a_new_one_where_there_are_too_many() -> None:
    links = ClientLinks()
    for number in range(MAX_LINKS + 1):
        links.received(str(number), 1)
    assert len(links.links()) == MAX_LINKS
    assert "0" not in links.links()
