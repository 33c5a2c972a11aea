"""The client's address behind the relay."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.base.asgi_types import Receive, Scope, Send
from gateway.server.http.forwarded_client import HEADER, ForwardedClient, client_header


async def seen_behind(headers: list[tuple[bytes, bytes]], peer: tuple[str, int] | None = None) -> Scope:
    seen: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope)

    async def never(*_: Any) -> Any:
        raise AssertionError

    await ForwardedClient(app)({"type": "http", "client": peer, "headers": headers}, never, never)
    return seen[0]


@pytest.mark.parametrize("client", [("10.1.2.3", 4567), ("2001:db8::1", 1), ("::ffff:10.0.0.1", 65535)])
async def test_an_address_is_relayed_unchanged(client: tuple[str, int]) -> None:
    scope = await seen_behind([(b"host", b"localhost"), client_header({"client": client})])
    assert scope["client"] == client
    assert scope["headers"] == [(b"host", b"localhost")]


@pytest.mark.parametrize("header", [b"", b"10.0.0.1", b" 5", b"10.0.0.1 x", b"\xff"])
async def test_a_client_without_address_stays_without_one(header: bytes) -> None:
    assert (await seen_behind([(HEADER, header)]))["client"] is None
    assert (await seen_behind([]))["client"] is None


async def test_a_client_over_tcp_cannot_claim_another_address() -> None:
    scope = await seen_behind([client_header({"client": ("10.1.2.3", 4567)})], peer=("192.0.2.1", 5))
    assert scope["client"] == ("192.0.2.1", 5)
    assert scope["headers"] == []
