"""Direct connections between gateways, without Redis or a control plane: one websocket to each peer.

A connecting gateway proves by HMAC that it holds the fleet secret. Between hosts, mutual TLS is below. A call is
answered on the connection on which it arrived. A notice has no answer and may be lost.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from hashlib import blake2b

import aiohttp
import msgspec
from aiohttp import WSMsgType, web

from gateway.base import background
from gateway.base.event_log import log_event
from gateway.contracts.wire import MIB, UnreadableMessageError, WireForm
from gateway.peers.peer_port import KEEP_ALIVE_S, PEER, PeerPort

PATH = "/peer"
IDENTITY_HEADER, PROOF_HEADER = "x-switchyard-peer", "x-switchyard-peer-proof"
SIGNED_HEADER = "x-switchyard-peer-signed"
PROOF_AGE_S = 30.0
"""A proof that was made longer ago, or whose clock is off by more, opens nothing."""
MAX_MESSAGE_BYTES = 4 * MIB
MAX_UNSENT_BYTES = 8 * MIB
"""Notices to a peer that reads more slowly than this are dropped."""
MAX_UNDER_WAY = 4096
CONNECT_S = 1.0
RETRY_S = 0.1
RETRY_MAX_S = 1.0
SILENCE_S = 2.0
"""A connection without a sign of life for this long is closed."""


class PeerGoneError(Exception):
    """The peer's process has ended: its address rejects connections."""


class PeerSilentError(Exception):
    """The peer did not answer in time; it may be alive or dead."""


class PeerIdentity(msgspec.Struct, frozen=True):
    """Identity of a gateway: the tag of its ids (TaggedIds), new at each start, its region, and its node's name."""

    tag: str
    region: str
    name: str = ""


class Call(msgspec.Struct, frozen=True, tag="call"):
    """One message that expects an Answer."""

    call_id: int
    kind: str
    body: bytes


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """A handler's result, or the reason for its absence."""

    call_id: int
    body: bytes = b""
    error: str = ""


class Notice(msgspec.Struct, frozen=True, tag="notice"):
    """A message without an answer."""

    kind: str
    body: bytes


_FORM: WireForm[Call | Answer | Notice] = WireForm(
    Call | Answer | Notice,  # type: ignore[arg-type]  # a union is no type object
    "a peer's message",
    limit=MAX_MESSAGE_BYTES,
)
_IDENTITY: WireForm[PeerIdentity] = WireForm(PeerIdentity, "a peer's identity", limit=4096)

CallHandler = Callable[[PeerIdentity, bytes], Awaitable[bytes]]
NoticeHandler = Callable[[PeerIdentity, bytes], None]


class PeerFailedError(Exception):
    """The peer's handler failed, or the peer knows no calls of this kind."""


class PeerProof:
    """Creates and checks the proof that a gateway sends when it connects. Mutable state: proofs of the last seconds."""

    def __init__(self, fleet_secret: bytes, wall: Callable[[], float] = time.time) -> None:
        self._key = blake2b(fleet_secret, person=b"peer connection").digest()
        self._wall = wall
        self._seen: dict[str, float] = {}

    def headers(self, me: PeerIdentity, signed: bytes = b"") -> dict[str, str]:
        """Return the headers of a connection, or of a request with something that only we can have said."""
        identity = _IDENTITY.encode(me).hex()
        made = f"{self._wall():.3f}.{secrets.token_hex(16)}"
        said = signed.hex()
        headers = {IDENTITY_HEADER: identity, PROOF_HEADER: f"{made}.{self._sign(identity, made, said)}"}
        return {**headers, SIGNED_HEADER: said} if said else headers

    def identity(self, headers: Mapping[str, str]) -> PeerIdentity | None:
        """Return who connects; None: unproved, out of date, or shown before."""
        identity, said = headers.get(IDENTITY_HEADER, ""), headers.get(SIGNED_HEADER, "")
        made, _, signature = headers.get(PROOF_HEADER, "").rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(identity, made, said).encode()):
            return None
        now = self._wall()
        while self._seen and now - next(iter(self._seen.values())) > 2 * PROOF_AGE_S:
            del self._seen[next(iter(self._seen))]
        at = float(made.rpartition(".")[0])
        if abs(now - at) > PROOF_AGE_S or made in self._seen:
            return None
        self._seen[made] = at
        with suppress(UnreadableMessageError, ValueError):
            return _IDENTITY.decode(bytes.fromhex(identity))
        return None

    def _sign(self, identity: str, made: str, said: str) -> str:
        return blake2b(f"{identity}\n{made}\n{said}".encode(), key=self._key, digest_size=32).hexdigest()


class PeerLinks:
    """One gateway's end of all connections; everything runs on its event loop.

    Mutable state: the peers' addresses, one _Link for each, and the tasks that answer calls.
    """

    def __init__(
        self,
        me: PeerIdentity,
        fleet_secret: bytes,
        *,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        rejected: Callable[[str], None] = lambda _cause: None,
    ) -> None:
        """`rejected` is called with the cause for each connection to our port that proves nothing, or is too many."""
        self.me = me
        self._proof = PeerProof(fleet_secret)
        self._client_tls = client_tls
        self._port = PeerPort(self.identify, server_tls, rejected)
        self._calls: dict[str, CallHandler] = {}
        self._notices: dict[str, NoticeHandler] = {}
        self._links: dict[str, _Link] = {}
        self._groups: dict[str, frozenset[str]] = {}
        """The names that each user of the links keeps; users keep their names apart."""
        self._answering: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None
        self.app = web.Application(client_max_size=MAX_MESSAGE_BYTES, middlewares=[self._port.prove])
        """Of the peers' port; further routes, which only peers reach, may be added before `start`."""
        self.app.router.add_get(PATH, self._accept)

    def on_call(self, kind: str, handler: CallHandler) -> None:
        """Answer calls of this kind; an exception of the handler reaches the caller as PeerFailedError."""
        self._calls[kind] = handler

    def on_notice(self, kind: str, handler: NoticeHandler) -> None:
        """Hear notices of this kind."""
        self._notices[kind] = handler

    def identify(self, headers: Mapping[str, str]) -> PeerIdentity | None:
        """Return who proves to be a peer by these headers; None: unproved, out of date, or shown before."""
        if not all(headers.get(name, "").isascii() for name in (IDENTITY_HEADER, PROOF_HEADER, SIGNED_HEADER)):
            return None
        return self._proof.identity(headers)

    def proof(self, signed: bytes = b"") -> dict[str, str]:
        """Return the headers that prove us to a further route of a peer, and that we said `signed`."""
        return self._proof.headers(self.me, signed)

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port; port 0 takes a free one."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        ours = await self._port.start(self.app, host, port)
        for link in self._links.values():
            link.start(self._session)
        return ours

    async def stop(self) -> None:
        """Close all connections."""
        for link in list(self._links.values()):
            await link.stop()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        await self._port.stop()
        if self._session is not None:
            await self._session.close()

    def set_peers(self, addresses: Mapping[str, str], group: str = "") -> None:
        """Keep a connection to each of these, by any name of ours ("host:port" each), and end the group's others."""
        for name in self._groups.get(group, frozenset()) - addresses.keys():
            self._end(name)
        self._groups[group] = frozenset(addresses)
        for name, address in addresses.items():
            link = self._links.get(name)
            if link is not None and link.address == address:
                continue
            if link is not None:
                self._end(name)
            self._links[name] = link = _Link(name, address, self._proof, self.me, self._client_tls)
            if self._session is not None:
                link.start(self._session)

    def connected(self, name: str) -> bool:
        """Return whether there is a connection to this peer now."""
        link = self._links.get(name)
        return link is not None and link.connected

    def refused(self, name: str) -> bool:
        """Return whether the last try to connect was refused: no process listens there."""
        link = self._links.get(name)
        return link is not None and link.refused

    def lives(self, name: str) -> None:
        """Note that a peer was heard of on its own connection: try ours again at once, where it was rejected before."""
        link = self._links.get(name)
        if link is not None and link.refused:
            link.retry()

    async def ask(self, name: str, kind: str, body: bytes, timeout_s: float) -> bytes:
        """Return a peer's answer; raises PeerGoneError, PeerSilentError and PeerFailedError."""
        link = self._links.get(name)
        if link is None:
            raise PeerGoneError(name)
        return await link.ask(kind, body, timeout_s)

    def tell(self, name: str, kind: str, body: bytes) -> bool:
        """Send a notice; False: there is no connection, or the peer does not keep up."""
        link = self._links.get(name)
        return link is not None and link.send(Notice(kind, body))

    def post(
        self, name: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a request to a further route of a peer's `app`; raises PeerGoneError for a name that is not kept."""
        link = self._links.get(name)
        if link is None or self._session is None:
            raise PeerGoneError(name)
        return self._session.post(
            f"{self._scheme}://{link.address}{path}",
            data=body,
            headers=headers,
            allow_redirects=False,
            ssl=self._client_tls if self._client_tls is not None else True,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        )

    @property
    def _scheme(self) -> str:
        return "https" if self._client_tls is not None else "http"

    def _end(self, name: str) -> None:
        task = asyncio.get_running_loop().create_task(self._links.pop(name).stop(), name=f"end of the link to {name}")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _accept(self, request: web.Request) -> web.StreamResponse:
        peer: PeerIdentity = request[PEER]
        socket = web.WebSocketResponse(heartbeat=SILENCE_S, max_msg_size=MAX_MESSAGE_BYTES, compress=False)
        try:
            await socket.prepare(request)
        except ConnectionError:
            # Whoever connected did not wait.
            return socket
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                break
            try:
                self._take(peer, socket, _FORM.decode(message.data))
            except UnreadableMessageError as error:
                log_event("peer_message_refused", level=logging.WARNING, peer=peer.tag, reason=str(error))
                break
        return socket

    def _take(self, peer: PeerIdentity, socket: web.WebSocketResponse, message: Call | Answer | Notice) -> None:
        if isinstance(message, Notice):
            handler = self._notices.get(message.kind)
            if handler is not None:
                handler(peer, message.body)
        elif isinstance(message, Call):
            task = asyncio.create_task(self._answer(peer, socket, message), name="answer to a peer")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, peer: PeerIdentity, socket: web.WebSocketResponse, call: Call) -> None:
        handler = self._calls.get(call.kind)
        if handler is None or len(self._answering) > MAX_UNDER_WAY:
            answer = Answer(call.call_id, error="unknown" if handler is None else "busy")
        else:
            try:
                answer = Answer(call.call_id, await handler(peer, call.body))
            except Exception as error:  # noqa: BLE001 - the edge of the task: who asked must hear that it failed
                log_event("crashed", level=logging.ERROR, error=type(error).__name__, where=call.kind)
                answer = Answer(call.call_id, error=type(error).__name__)
        with suppress(ConnectionError):
            await socket.send_bytes(_FORM.encode(answer))


class _Link:
    """Our connection to one peer, made again whenever it ends. Mutable state: the socket and calls that wait."""

    def __init__(self, name: str, address: str, proof: PeerProof, me: PeerIdentity, tls: ssl.SSLContext | None) -> None:
        self.address = address
        self.refused = False
        self._name, self._me, self._tls, self._proof = name, me, tls, proof
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._next_id = 0
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._wake = asyncio.Event()
        self._again = asyncio.Event()

    @property
    def connected(self) -> bool:
        return self._socket is not None and not self._socket.closed

    def start(self, session: aiohttp.ClientSession) -> None:
        self._task = background.start(f"link to {self._name}", lambda: self._keep(session))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def retry(self) -> None:
        """Connect at once; until that is refused, too, nothing speaks for the peer's end."""
        self.refused = False
        self._again.set()

    async def ask(self, kind: str, body: bytes, timeout_s: float) -> bytes:
        if not self.connected:
            raise PeerGoneError(self._name) if self.refused else PeerSilentError(self._name)
        self._next_id += 1
        call = Call(self._next_id, kind, body)
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[call.call_id] = answered
        try:
            async with asyncio.timeout(timeout_s):
                if not self.send(call):
                    raise PeerSilentError(self._name)
                answer = await answered
        except TimeoutError:
            raise PeerSilentError(self._name) from None
        finally:
            del self._waiting[call.call_id]
        if answer.error:
            raise PeerFailedError(answer.error)
        return answer.body

    def send(self, message: Call | Notice) -> bool:
        data = _FORM.encode(message)
        if not self.connected or self._unsent_bytes + len(data) > MAX_UNSENT_BYTES:
            return False
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        self._wake.set()
        return True

    async def _keep(self, session: aiohttp.ClientSession) -> None:
        pause_s = RETRY_S
        scheme = "https" if self._tls is not None else "http"
        while True:
            try:
                async with asyncio.timeout(CONNECT_S):
                    socket = await session.ws_connect(
                        f"{scheme}://{self.address}{PATH}",
                        headers=self._proof.headers(self._me),
                        ssl=self._tls if self._tls is not None else True,
                        heartbeat=SILENCE_S,
                        max_msg_size=MAX_MESSAGE_BYTES,
                    )
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self.refused = isinstance(error, aiohttp.ClientConnectorError) and isinstance(
                    error.os_error, ConnectionRefusedError
                )
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._again.wait()
                self._again.clear()
                pause_s = min(2 * pause_s, RETRY_MAX_S)
                continue
            pause_s, self.refused, self._socket = RETRY_S, False, socket
            sender = asyncio.create_task(self._send_all(socket), name=f"to {self._name}")
            try:
                await self._read(socket)
            finally:
                self._socket = None
                sender.cancel()
                await asyncio.gather(sender, return_exceptions=True)
                await socket.close()
                self._fail_waiting()

    async def _send_all(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._unsent:
                data = self._unsent.popleft()
                self._unsent_bytes -= len(data)
                await socket.send_bytes(data)

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                return
            try:
                answer = _FORM.decode(message.data)
            except UnreadableMessageError as error:
                log_event("peer_message_refused", level=logging.WARNING, peer=self._name, reason=str(error))
                return
            if isinstance(answer, Answer):
                waiting = self._waiting.get(answer.call_id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)

    def _fail_waiting(self) -> None:
        """Calls whose connection has ended may have been heard; a notice that was not sent is lost."""
        self._unsent.clear()
        self._unsent_bytes = 0
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(PeerSilentError(self._name))
