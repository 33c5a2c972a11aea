"""Accepts requests that other regions' gateways forward, and serves them as if they had arrived here."""

from __future__ import annotations

import asyncio
import io
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from aiohttp import web

from gateway.base.asgi_types import Message
from gateway.contracts.wire import MIB, UnreadableMessageError
from gateway.peers.links.peer_port import PEER
from gateway.peers.links.peer_proof import PROOF_HEADER, SIGNED_HEADER, PeerIdentity
from gateway.peers.regions.forward_client import (
    MAX_AGE_S,
    MAX_HOPS,
    PATH,
    WITHDRAW,
    ForwardHead,
    body_digest,
    forward_heads,
)
from gateway.peers.regions.region_peers import RegionPeers
from gateway.peers.regions.work_lease import HeldLease
from gateway.server.http.edge import EdgeSettings
from gateway.server.http.guarded_receive import BodyWatch, GuardedReceive, RejectedAtEdgeError
from routing.regions.peer_gateway import SILENCE_S

SCOPE_KEY = "headway.forwarded"
"""Scope key of the ForwardedCall of a request that another gateway has authenticated."""
MAX_BODY_BYTES = 256 * MIB
"""Limit of a forwarded body. First contacts enforce their own, lower limit."""
MAX_REMEMBERED = 65_536
"""Limit of remembered forwarded requests, so that none is served twice."""
_OURS = frozenset({PROOF_HEADER, SIGNED_HEADER, "host", "content-length", "transfer-encoding"})


class ForwardedCall(NamedTuple):
    """A forwarded request as this gateway has accepted it."""

    head: ForwardHead
    lease: HeldLease
    """It begins only while this lease holds."""


App = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]
]


class ForwardServer:
    """One route of the peers' port. Mutable: the ids of the last requests, and the running ones."""

    def __init__(self, peers: RegionPeers, app: App) -> None:
        """Serve each request with `app`. Call it before the port opens."""
        self._peers, self._app = peers, app
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._serving: dict[str, asyncio.Task[None]] = {}
        edge = EdgeSettings()
        self._watch = BodyWatch(edge.stall_s, edge.min_bytes_per_s)
        peers.links.app.router.add_post(PATH + "{path:/.*}", self._serve)
        peers.links.on_call(WITHDRAW, self._withdraw)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        peer: PeerIdentity = request[PEER]
        try:
            head = forward_heads.decode(bytes.fromhex(request.headers.get(SIGNED_HEADER, "")))
        except (UnreadableMessageError, ValueError):
            return _rejected(400, "unreadable")
        try:
            body = await self._read(request)
        except RejectedAtEdgeError as error:
            return _rejected(error.status, error.code)
        lease = self._peers.lease_of(peer.tag, head.stamp)
        # Before the digest, which may take a while in a thread: the lease has to hold from the arrival on.
        held = lease.held(self._peers.clock)
        if problem := self._problem(head, await body_digest(body)):
            return _rejected(409, problem)
        # No await since the check: of two arrivals only one passes.
        self._remember(head.decision_id)
        bridge = _Bridge(request, body)
        work = asyncio.ensure_future(self._app(_scope(request, ForwardedCall(head, held)), bridge.receive, bridge.send))
        self._serving[head.decision_id] = work
        try:
            async with lease.work():
                await work
        except TimeoutError:
            # The first contact is silent: it takes the request back, so that work on it must stop here.
            if request.transport is not None:
                request.transport.abort()
        except asyncio.CancelledError:
            # A withdrawal cancels `work` alone; the connection's end cancels this task.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        finally:
            del self._serving[head.decision_id]
        return bridge.response or _rejected(500, "unanswered")

    async def _read(self, request: web.Request) -> bytes:
        async def receive() -> Message:
            chunk = await request.content.readany()
            return {"type": "http.request", "body": chunk, "more_body": not request.content.at_eof()}

        body, guarded = io.BytesIO(), GuardedReceive(receive, MAX_BODY_BYTES, self._watch)
        while not guarded.done:
            body.write((await guarded())["body"])
        return body.getvalue()

    async def _withdraw(self, _peer: PeerIdentity, body: bytes) -> bytes:
        """End the work on a request that its first contact withdraws, and reject it if it arrives later."""
        decision_id = body.decode("latin-1")
        # The request may still be on its way, and is then rejected as served before.
        self._remember(decision_id)
        work = self._serving.get(decision_id)
        if work is not None:
            work.cancel()
            await asyncio.wait((work,))
        return b""

    def _problem(self, head: ForwardHead, digest: str) -> str:
        """Return the code of the reason not to serve the request here, empty if it is served."""
        if head.hops > MAX_HOPS or not 0 <= head.age_s <= MAX_AGE_S:
            return "too_many_hops" if head.hops > MAX_HOPS else "too_old"
        if digest != head.body:
            return "another_body"
        if not self._peers.epochs.serves(head.hop.destination):
            return "not_served_here"
        if not 0 <= self._peers.clock() - head.stamp <= SILENCE_S:
            # It waited somewhere on its way, and its first contact may have taken it back meanwhile. The lease cannot
            # decide: newer stamps may have renewed it since. The request's own stamp says when it was not taken back
            # yet; from here on the lease counts, which lasts as long and is renewed while both reach each other.
            return "too_late"
        return "served_before" if head.decision_id in self._seen else ""

    def _remember(self, decision_id: str) -> None:
        self._seen[decision_id] = None
        if len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)


def _rejected(status: int, code: str) -> web.Response:
    return web.json_response({"code": code}, status=status)


def _scope(request: web.Request, forwarded: ForwardedCall) -> dict[str, Any]:
    """Return the ASGI scope of the client's request."""
    headers = [
        (name.lower(), value) for name, value in request.raw_headers if name.decode("latin-1").lower() not in _OURS
    ]
    path = request.match_info["path"]
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "client": None,
        SCOPE_KEY: forwarded,
    }


class _Bridge:
    """Adapter from ASGI to aiohttp. Mutable: the body until it is read, and the response once it has begun."""

    def __init__(self, request: web.Request, body: bytes) -> None:
        self._request = request
        self._body: bytes | None = body
        self.response: web.StreamResponse | None = None

    async def receive(self) -> dict[str, Any]:
        body, self._body = self._body, None
        if body is None:
            # The forwarding gateway leaves by closing the connection, which cancels the handler.
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.response = web.StreamResponse(status=message["status"])
            for name, value in message["headers"]:
                self.response.headers[name.decode("latin-1")] = value.decode("latin-1")
            await self.response.prepare(self._request)
        elif self.response is not None:
            if message.get("body"):
                await self.response.write(message["body"])
            if not message.get("more_body", False):
                await self.response.write_eof()
