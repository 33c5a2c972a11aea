"""Sends a request to a gateway of another region, with a head that the peer's proof signs, and yields its answer as it
arrives.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from hashlib import blake2b

import aiohttp
import msgspec

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.contracts.wire import WireForm
from gateway.peers.links.peer_link import PeerFailedError, PeerGoneError, PeerLinks, PeerSilentError
from gateway.peers.regions.region_peers import RegionGateway
from routing.regions.peer_gateway import SILENCE_S
from routing.values.hop import Hop

PATH = "/forward"
"""Path prefix on the peers' port, followed by the path of the client's request."""
WITHDRAW = "forward withdrawn"
"""A call with a decision's id, answered once no work on the request continues or will begin there."""
MAX_HOPS = 1
MAX_AGE_S = 3600.0


class ForwardHead(msgspec.Struct, frozen=True):
    """Sent with the client's body and headers, but without its credentials, which the first contact has checked."""

    decision_id: str
    hop: Hop
    caller: ApiKeyEntry
    """The caller's key without its quotas, which the first contact enforces."""
    age_s: float
    """Seconds since the request arrived at the first contact. The deadline counts from then."""
    body: str
    """BLAKE2b of the body, hex."""
    stamp: float
    """The newest stamp of the destination that its first contact has (gateway.peers.regions.work_lease)."""
    hops: int = 1


forward_heads = WireForm(ForwardHead, "the head of a forwarded request", limit=64 << 10)


_AGAIN_S = 0.05
_LONG_BODY = 1024 * 1024
REJECTED = frozenset({401, 408, 409, 429, 500, 501, 502, 503, 504})
"""Status codes that mean that the region did not serve the request. Any other is its answer."""


class ForwardFailedError(Exception):
    """The region did not serve the request, or its answer ended early.

    `settled`: no work on it continues there. Otherwise the region may not have noticed yet that its client is gone.
    """

    def __init__(self, cause: str, *, settled: bool) -> None:
        super().__init__(cause)
        self.settled = settled


async def signed_head(
    decision_id: str, hop: Hop, caller: ApiKeyEntry, body: bytes, *, age_s: float, stamp: float
) -> bytes:
    """Return the head of a forwarded request in the form that is signed."""
    # Limits that the first contact has judged stay with it.
    caller = msgspec.structs.replace(caller, rate_per_min=None, max_in_flight=None, served_models=(), sha256="")
    digest = await body_digest(body)
    return forward_heads.encode(ForwardHead(decision_id, hop, caller, age_s, digest, stamp))


async def body_digest(body: bytes) -> str:
    """Return the digest of the body for its head. A thread computes the digest of a long body."""
    if len(body) <= _LONG_BODY:
        return blake2b(body, digest_size=16).hexdigest()
    return (await asyncio.to_thread(blake2b, body, digest_size=16)).hexdigest()


class ForwardClient:
    """Forwards one request at a time. It has no state between requests."""

    def __init__(self, links: PeerLinks, clock: Callable[[], float] = time.monotonic) -> None:
        self._links = links
        self._clock = clock

    @asynccontextmanager
    async def answer(
        self, gateway: RegionGateway, path: str, body: bytes, headers: Mapping[str, str], head: bytes
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the region's answer. Leaving the block early ends the work there.

        Raise ForwardFailedError if there is no answer, or within the block if it ends early or the peer is silent.
        """
        try:
            async with (
                gateway.lease.work(),
                self._links.post(gateway.name, PATH + path, body, headers, head) as response,
            ):
                if response.status in REJECTED:
                    raise ForwardFailedError(f"status {response.status}", settled=True)
                yield response
        # Without a connection, the region never received the request.
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, PeerGoneError) as error:
            raise ForwardFailedError(type(error).__name__, settled=True) from None
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            raise ForwardFailedError(type(error).__name__, settled=False) from None

    async def settle(self, gateway: RegionGateway, decision_id: str) -> None:
        """Return when no work on a request continues or will begin there.

        The region reports this, or its lease has expired, or it is gone.
        """
        while not gateway.lease.is_over(self._clock()) and not self._links.refused(gateway.name):
            try:
                await self._links.ask(gateway.name, WITHDRAW, decision_id.encode(), SILENCE_S)
            except (PeerGoneError, PeerSilentError, PeerFailedError):
                await asyncio.sleep(_AGAIN_S)
            else:
                return
