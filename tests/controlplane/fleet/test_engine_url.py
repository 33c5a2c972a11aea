"""Accepted and rejected engine addresses."""

from __future__ import annotations

import ipaddress

import pytest

from controlplane.fleet.engine_url import (
    EngineUrlRules,
    RejectedUrlError,
    check_engine_url,
    check_kv_endpoint,
    normal_url,
    rank_of,
    resolve,
)

RULES = EngineUrlRules(
    networks=tuple(
        ipaddress.ip_network(network) for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
    ),
    own_services=frozenset({("db.internal", 5432), ("10.0.0.9", 6379)}),
)
DEMO_RULES = EngineUrlRules(networks=RULES.networks, allow_loopback=True)
NAMES = {
    "engine-1.internal": ["10.1.2.3"],
    "db.internal": ["10.0.0.8"],
    "also-db.internal": ["10.0.0.8"],
    "rebinds.example": ["10.1.2.3", "169.254.169.254"],
    "public.example": ["93.184.216.34"],
    "me.example": ["127.0.0.1"],
    "mapped.example": ["::ffff:10.1.2.3"],
    "v6.internal": ["fd12::7"],
}


def resolver(host: str, port: int) -> list[str]:
    if host not in NAMES:
        raise RejectedUrlError(f"{host} has no address")
    return NAMES[host]


@pytest.mark.parametrize(
    ("url", "connect_url"),
    [
        ("http://10.1.2.3:8000", "http://10.1.2.3:8000"),
        ("http://10.1.2.3", "http://10.1.2.3:80"),
        ("http://10.1.2.3:8000/", "http://10.1.2.3:8000"),
        ("http://engine-1.internal:8000/rank/0", "http://10.1.2.3:8000/rank/0"),
        ("http://engine-1.internal.:8000", "http://10.1.2.3:8000"),
        ("HTTP://engine-1.internal:8000", "http://10.1.2.3:8000"),
        ("http://v6.internal:8000", "http://[fd12::7]:8000"),
        ("http://[fd12::7]:8000", "http://[fd12::7]:8000"),
        ("https://engine-1.internal", "https://engine-1.internal:443"),
    ],
)
def test_engines_in_allowed_networks_are_accepted_and_their_address_is_pinned(url: str, connect_url: str) -> None:
    assert check_engine_url(url, RULES, resolver).connect_url == connect_url


def test_rank_is_part_of_the_url_and_not_of_the_connection() -> None:
    checked = check_engine_url("http://engine-1.internal:8000/#01", RULES, resolver)
    assert (checked.url, checked.connect_url) == ("http://engine-1.internal:8000#1", "http://10.1.2.3:8000")
    assert (rank_of(checked.url), rank_of("http://engine-1.internal:8000")) == (1, None)
    assert normal_url("http://engine-1.internal:8000#1") == checked.url


@pytest.mark.parametrize(
    "url",
    [
        "http://10.1.2.3:8000#",
        "http://10.1.2.3:8000#-1",
        "http://10.1.2.3:8000#1?x",
        "ftp://10.1.2.3:8000",
        "file:///etc/passwd",
        "gopher://10.1.2.3:6379/_FLUSHALL",
        "10.1.2.3:8000",
        "",
        "http://",
        "http://:8000",
        "http://10.1.2.3:0",
        "http://10.1.2.3:99999",
        "http://user:secret@10.1.2.3:8000",
        "http://10.1.2.3:8000?x=1",
        "http://10.1.2.3:8000#x",
        "http://10.1.2.3:8000/../admin",
        "http://10.1.2.3:8000/a%2e%2e/b",
        "http://10.1.2.3\\@169.254.169.254",
        "http://10.1.2.3 .evil.example",
        "http://10.1.2.3:8000/\r\nHost: x",
    ],
)
def test_everything_but_plain_http_addresses_is_rejected(url: str) -> None:
    with pytest.raises(RejectedUrlError):
        check_engine_url(url, DEMO_RULES, resolver)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254",
        "http://169.254.10.1",
        "http://[fe80::1]",
        "http://[fe80::1%25eth0]",
        "http://[fd00:ec2::254]",
        "http://100.100.100.200",
        "http://168.63.129.16",
        "http://metadata.google.internal",
        "http://Metadata",
        "http://224.0.0.1",
        "http://[ff02::1]",
        "http://0.0.0.0",
        "http://[::]",
        "http://255.255.255.255",
        "http://[::ffff:10.1.2.3]",
        "http://[::ffff:127.0.0.1]",
        "http://[64:ff9b::a01:203]",
        "http://[2002:a01:203::1]",
        "http://mapped.example",
        "http://2130706433",
        "http://0x7f000001",
        "http://0x7f.1",
        "http://127.1",
        "http://0177.0.0.1",
        "http://10.1.515",
        "http://①⑥⑨.②⑤④.①⑥⑨.②⑤④",
        "http://93.184.216.34",
        "http://public.example",
        "http://nowhere.example",
        "http://rebinds.example",
    ],
)
def test_reserved_addresses_are_rejected_even_if_loopback_is_allowed(url: str) -> None:
    with pytest.raises(RejectedUrlError):
        check_engine_url(url, DEMO_RULES, resolver)


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "10.1.515"])
def test_numeric_hosts_are_never_resolved(host: str) -> None:
    with pytest.raises(RejectedUrlError, match="four decimal numbers"):
        check_engine_url(f"http://{host}", RULES, lambda _host, _port: ["10.1.2.3"])


@pytest.mark.parametrize("host", ["[::ffff:10.1.2.3]", "[64:ff9b::a9fe:a9fe]", "[2002:a01:203::1]"])
def test_ipv6_address_that_embeds_an_ipv4_address_is_always_rejected(host: str) -> None:
    everywhere = EngineUrlRules(networks=(ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")))
    with pytest.raises(RejectedUrlError, match="write the IPv4 address"):
        check_engine_url(f"http://{host}", everywhere, resolver)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://127.8.9.1", "http://[::1]:8000", "http://me.example"])
def test_loopback_requires_permission(url: str) -> None:
    with pytest.raises(RejectedUrlError, match="HEADWAY_ALLOW_LOOPBACK_ENGINES"):
        check_engine_url(url, RULES, resolver)
    assert check_engine_url(url, DEMO_RULES, resolver).address in {"127.0.0.1", "127.8.9.1", "::1"}


@pytest.mark.parametrize(
    "url", ["http://db.internal:5432", "http://also-db.internal:5432", "http://10.0.0.8:5432", "http://10.0.0.9:6379"]
)
def test_our_own_database_and_redis_are_rejected_under_any_name(url: str) -> None:
    with pytest.raises(RejectedUrlError, match="our own"):
        check_engine_url(url, RULES, resolver)


def test_other_port_of_the_database_host_is_accepted() -> None:
    assert check_engine_url("http://db.internal:8000", RULES, resolver).port == 8000


def test_kv_endpoint_is_a_tcp_address_with_a_port() -> None:
    checked = check_kv_endpoint("tcp://engine-1.internal:5557", RULES, resolver)
    assert checked.connect_url == "tcp://10.1.2.3:5557"


@pytest.mark.parametrize(
    "endpoint", ["tcp://10.1.2.3", "http://10.1.2.3:5557", "ipc:///tmp/x", "tcp://10.1.2.3:1/x", "tcp://169.254.1.1:5"]
)
def test_other_kv_endpoints_are_rejected(endpoint: str) -> None:
    with pytest.raises(RejectedUrlError):
        check_kv_endpoint(endpoint, RULES, resolver)


def test_real_resolver_resolves_localhost() -> None:
    assert "127.0.0.1" in resolve("localhost", 80)
