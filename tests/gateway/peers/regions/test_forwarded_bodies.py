"""Bodies of forwarded requests that are too slow or too long end the request and never reach the app."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.peers.links.peer_link import PeerLinks
from gateway.peers.links.peer_proof import PeerIdentity
from gateway.peers.regions import forward_server
from gateway.peers.regions.forward_client import REJECTED, signed_head
from gateway.peers.regions.forward_server import ForwardServer
from kvstore.keys.keyring import Keyring
from routing.values.hop import Hop
from tests.gateway.raw_http import RawConnection, post
from tests.patience import PATIENCE_S, until

KEYRING = Keyring.of(b"the secret of a fleet of gateways")
BODY = b"x" * 1000


async def never(*_: Any) -> None:
    pytest.fail("the app was called")


@asynccontextmanager
async def forwarding() -> AsyncIterator[tuple[ForwardServer, str, bytes]]:
    """Yield a region's server, its address, and a request with the proof of another region's gateway."""
    links = PeerLinks(PeerIdentity("bbbbbbbb", "eu"), KEYRING)
    peers: Any = SimpleNamespace(links=links)
    server = ForwardServer(peers, never)
    caller = ApiKeyEntry(key_id="key", sha256="", tenant_id="acme")
    head = await signed_head("d", Hop("us", "eu", "load", ""), caller, BODY, age_s=0.0, stamp=0.0)
    asking = PeerLinks(PeerIdentity("aaaaaaaa", "us"), KEYRING)
    port = await links.start("127.0.0.1", 0)
    await asking.start("127.0.0.1", 0)
    asking.set_peers({"eu": f"127.0.0.1:{port}"})
    try:
        await until(lambda: asking.connected("eu"))
        session = asking._links["eu"].session
        assert session is not None
        proof = (f"{name}: {value}" for name, value in session.headers(head).items())
        yield server, f"http://127.0.0.1:{port}", post("/forward/v1/chat/completions", BODY, *proof)
    finally:
        await asking.stop()
        await links.stop()


async def answer_to(url: str, request: bytes) -> tuple[int, str]:
    peer = await RawConnection.open(url)
    async with asyncio.timeout(PATIENCE_S):
        await peer.send(request)
        status, _, body = await peer.answer()
    await peer.close()
    return status, json.loads(body)["code"]


async def test_a_stalled_body_is_rejected_so_that_the_first_gateway_asks_elsewhere() -> None:
    async with forwarding() as (server, url, request):
        server._watch.stall_s = 0.0
        status, code = await answer_to(url, request[:-10])
        assert (status, code) == (408, "body_timeout")
        assert status in REJECTED


async def test_a_body_over_the_limit_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_server, "MAX_BODY_BYTES", len(BODY) - 1)
    async with forwarding() as (_, url, request):
        assert await answer_to(url, request) == (413, "body_too_large")


async def test_a_caller_without_proof_reaches_no_route() -> None:
    async with forwarding() as (_, url, _):
        stranger = await RawConnection.open(url)
        await stranger.send(post("/forward/v1/chat/completions", BODY))
        assert (await stranger.answer())[0] == 401
        await stranger.close()
