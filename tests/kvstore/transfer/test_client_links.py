from __future__ import annotations

import pytest

from kvstore.transfer.client_links import MAX_LINKS, ClientLinks


def test_bytes_are_counted_by_name_and_direction() -> None:
    links = ClientLinks()
    links.sent("a", 1000, 0.0)
    links.received("a", 7)
    links.received("b", 5)
    counted = {name: (link.sent_bytes, link.received_bytes) for name, link in links.links().items()}
    assert counted == {"a": (1000, 7), "b": (0, 5)}


@pytest.mark.parametrize("nonsense", [0.0, -5.0, float("nan"), float("inf")])
def test_the_rate_is_the_clients_last_plausible_report(nonsense: float) -> None:
    links = ClientLinks()
    for rate in (0.0, 7e6, 9e6, nonsense):
        links.sent("a", 1, rate)
    assert links.links()["a"].bytes_per_s == 9e6


def test_beyond_the_limit_the_first_client_is_forgotten() -> None:
    links = ClientLinks()
    for number in range(MAX_LINKS + 1):
        links.received(str(number), 1)
    assert len(links.links()) == MAX_LINKS
    assert "0" not in links.links()
