"""Sends a request to a gateway of another region, and yields its answer as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import blake2b

import aiohttp
import msgspec

from gateway.contracts.hop import Hop
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.peers.peer_link import PeerGoneError, PeerLinks
from gateway.regions.forward_head import PATH, ForwardHead, forward_heads
from gateway.regions.peer_gateway import LEASE_MARGIN_S, PeerGateway

REFUSED = frozenset({401, 409, 429, 500, 501, 502, 503, 504})
"""Statuses that say that the region did not serve the request; any other is its answer."""


class ForwardFailedError(Exception):
    """The region did not serve the request, or its answer broke off; nobody is at work on it there any more."""


def signed_head(decision_id: str, hop: Hop, caller: ApiKeyEntry, body: bytes, *, age_s: float) -> bytes:
    """Return the head of a forwarded request as it is signed."""
    # What the first contact has judged stays with it.
    caller = msgspec.structs.replace(caller, rate_per_min=None, max_in_flight=None, served_models=(), sha256="")
    digest = blake2b(body, digest_size=16).hexdigest()
    return forward_heads.encode(ForwardHead(decision_id, hop, caller, age_s, digest))


class ForwardClient:
    """One forward after the other; keeps no state between them."""

    def __init__(self, links: PeerLinks) -> None:
        self._links = links

    @asynccontextmanager
    async def answer(
        self, gateway: PeerGateway, path: str, body: bytes, headers: Mapping[str, str], head: bytes
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the region's answer; leaving the block early ends its work there.

        Raises ForwardFailedError where there is none, and in the block where it breaks off or the peer falls silent.
        """
        sent = {**headers, **self._links.proof(head)}
        try:
            async with (
                gateway.while_heard(LEASE_MARGIN_S),
                self._links.post(gateway.name, PATH + path, body, sent) as response,
            ):
                if response.status in REFUSED:
                    raise ForwardFailedError(f"status {response.status}")
                yield response
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError, PeerGoneError) as error:
            raise ForwardFailedError(type(error).__name__) from None
