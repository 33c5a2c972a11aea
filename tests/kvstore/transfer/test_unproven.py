"""Which connection is dropped when too many have not proved the secret yet."""

from __future__ import annotations

import pytest

from kvstore.transfer.unproven import Unproven, source_of


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("", ""),
    ],
)
def test_a_source_is_an_address_or_its_ipv6_network(address: str, source: str) -> None:
    assert source_of(address) == source


def test_a_connection_over_the_limit_displaces_the_oldest() -> None:
    unproven: Unproven[str] = Unproven(2, 5.0)
    assert [unproven.enter(name, "10.0.0.1", 0.0) for name in "abcd"] == [None, None, "a", "b"]
    assert len(unproven) == 2


def test_a_source_displaces_its_own_connections_before_those_of_others() -> None:
    unproven: Unproven[str] = Unproven(4, 5.0)
    assert unproven.enter("client", "10.0.0.1", 0.0) is None
    displaced = [unproven.enter(f"stranger {number}", f"2001:db8::{number:x}", 0.0) for number in range(100)]
    assert displaced == [None] * 3 + [f"stranger {number}" for number in range(97)]
    assert unproven.leave("client")


def test_among_many_addresses_the_oldest_connection_is_dropped() -> None:
    unproven: Unproven[str] = Unproven(3, 5.0)
    assert [unproven.enter(name, f"10.0.0.{ord(name)}", 0.0) for name in "abcd"] == [None, None, None, "a"]


def test_connections_that_proved_the_secret_or_ended_no_longer_count() -> None:
    unproven: Unproven[str] = Unproven(2, 5.0)
    for name in "ab":
        unproven.enter(name, "10.0.0.1", 0.0)
    assert unproven.leave("a")
    assert not unproven.leave("a")
    assert unproven.enter("c", "10.0.0.1", 0.0) is None


def test_a_connection_is_late_after_its_timeout_whatever_it_does() -> None:
    unproven: Unproven[str] = Unproven(8, 5.0)
    unproven.enter("a", "10.0.0.1", 0.0)
    unproven.enter("b", "10.0.0.1", 3.0)
    assert unproven.late(4.9) == []
    assert unproven.late(5.0) == ["a"]
    assert not unproven.leave("a"), "it was closed already"
    assert unproven.late(8.0) == ["b"]
