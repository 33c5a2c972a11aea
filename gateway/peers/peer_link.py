"""Direct connections between gateways, without Redis or a control plane: one websocket to each peer.

Both ends prove that they hold a fleet secret (peer_proof). Between hosts, connections use mutual TLS. A call is
answered on the connection on which it arrived. A notice has no answer and can be lost.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress

import aiohttp
import msgspec
from aiohttp import WSMsgType, web

from gateway.base import background
from gateway.base.event_log import log_event
from gateway.contracts.wire import MIB, UnreadableMessageError, WireForm
from gateway.peers.peer_port import KEEP_ALIVE_S, PEER, PeerPort
from gateway.peers.peer_proof import CHALLENGE_HEADER, PROOF_HEADER, SEAL_BYTES, PeerIdentity, PeerProofs, PeerSession
from kvstore.keys.keyring import Keyring
from kvstore.transfer.tls import LiveTls

PATH = "/peer"
MAX_MESSAGE_BYTES = 4 * MIB
MAX_UNSENT_BYTES = 8 * MIB
"""Limit of unsent bytes per peer. Beyond it, notices to a slow peer are dropped."""
MAX_UNDER_WAY = 4096
CONNECT_S = 1.0
RETRY_S = 0.1
RETRY_MAX_S = 1.0
SILENCE_S = 2.0
"""A connection without a sign of life for this long is closed."""


_REMEDY = "Set the same HEADWAY_FLEET_SECRET for all gateways."


class PeerGoneError(Exception):
    """The peer's process has ended: its address refuses connections."""


class PeerSilentError(Exception):
    """The peer did not answer in time. It may be alive or dead."""


class Call(msgspec.Struct, frozen=True, tag="call"):
    """A message that expects a LinkAnswer."""

    call_id: int
    kind: str
    body: bytes


class LinkAnswer(msgspec.Struct, frozen=True, tag="answer"):
    """A handler's result, or why there is none."""

    call_id: int
    body: bytes = b""
    error: str = ""


class Notice(msgspec.Struct, frozen=True, tag="notice"):
    """A message that expects no answer."""

    kind: str
    body: bytes


_FORM: WireForm[Call | LinkAnswer | Notice] = WireForm(
    Call | LinkAnswer | Notice,  # type: ignore[arg-type]  # a union is no type object
    "a peer's message",
    limit=MAX_MESSAGE_BYTES,
)
CallHandler = Callable[[PeerIdentity, bytes], Awaitable[bytes]]
NoticeHandler = Callable[[PeerIdentity, bytes], None]


class PeerFailedError(Exception):
    """The peer's handler failed, or the peer has no handler for this kind of call."""


class PeerLinks:
    """All connections of one gateway to its peers. Everything runs on its event loop.

    Mutable: the peers' addresses, one _Link per peer, and the tasks that answer calls.
    """

    def __init__(
        self,
        me: PeerIdentity,
        keyring: Keyring,
        tls: LiveTls | None = None,
        rejected: Callable[[str], None] = lambda _cause: None,
    ) -> None:
        """`rejected` is called with the cause for each connection to our port without a proof or over the limit."""
        self.me = me
        self._proofs = PeerProofs(me, keyring, seals=tls is None)
        self._tls = tls
        self._port = PeerPort(self._identify, self._unproved, _followed(tls) if tls is not None else None, rejected)
        self._calls: dict[str, CallHandler] = {}
        self._notices: dict[str, NoticeHandler] = {}
        self._links: dict[str, _Link] = {}
        self._groups: dict[str, frozenset[str]] = {}
        """Group → names of the peers that it keeps connected. Each user of the links has its own group."""
        self._answering: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None
        self.app = web.Application(client_max_size=MAX_MESSAGE_BYTES, middlewares=[self._port.prove])
        """The app of the peers' port. Further routes for peers can be added before `start`."""
        self.app.router.add_get(PATH, self._accept)

    def on_call(self, kind: str, handler: CallHandler) -> None:
        """Answer calls of this kind. The handler's exceptions reach the caller as PeerFailedError."""
        self._calls[kind] = handler

    def on_notice(self, kind: str, handler: NoticeHandler) -> None:
        """Route notices of this kind to `handler`."""
        self._notices[kind] = handler

    def _identify(self, request: web.Request) -> PeerIdentity | PeerSession | None:
        """Return the sender of a request: the session of a connecting gateway, or the identity of a connected one."""
        if request.path == PATH:
            connects = request.method == "GET" and PROOF_HEADER in request.headers
            return self._proofs.accept(request.headers) if connects else None
        return self._proofs.proved(request.headers)

    def _unproved(self, request: web.Request) -> web.Response:
        """Answer a request without a proof. A gateway that may be about to connect gets a challenge."""
        if request.path == PATH and PROOF_HEADER not in request.headers:
            return web.Response(status=401, headers={CHALLENGE_HEADER: self._proofs.challenge()})
        response = web.Response(status=401, text=_REMEDY + "\n")
        # A sender that proves nothing keeps no connection.
        response.force_close()
        return response

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port. Port 0 selects a free one."""
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
        """Keep a connection to each of these addresses ("host:port" by name), and close the group's others."""
        for name in self._groups.get(group, frozenset()) - addresses.keys():
            self._end(name)
        self._groups[group] = frozenset(addresses)
        for name, address in addresses.items():
            link = self._links.get(name)
            if link is not None and link.address == address:
                continue
            if link is not None:
                self._end(name)
            self._links[name] = link = _Link(name, address, self._proofs, self._tls)
            if self._session is not None:
                link.start(self._session)

    def connected(self, name: str) -> bool:
        """Return whether this peer is connected now."""
        return self.session(name) is not None

    def session(self, name: str) -> PeerSession | None:
        """Return the session of the connection to this peer, None without a connection."""
        link = self._links.get(name)
        return link.session if link is not None and link.connected else None

    def refused(self, name: str) -> bool:
        """Return whether the last connection attempt was refused, so that no process listens there."""
        link = self._links.get(name)
        return link is not None and link.refused

    def lives(self, name: str) -> None:
        """Record that the peer connected to us. If our connection was refused before, retry it immediately."""
        link = self._links.get(name)
        if link is not None and link.refused:
            link.retry()

    async def ask(self, name: str, kind: str, body: bytes, timeout_s: float) -> bytes:
        """Return a peer's answer; raise PeerGoneError, PeerSilentError or PeerFailedError."""
        link = self._links.get(name)
        if link is None:
            raise PeerGoneError(name)
        return await link.ask(kind, body, timeout_s)

    def notify(self, name: str, kind: str, body: bytes) -> bool:
        """Send a notice. Return False if there is no connection or the peer reads too slowly."""
        link = self._links.get(name)
        return link is not None and link.send(Notice(kind, body))

    def post(
        self, name: str, path: str, body: bytes, headers: Mapping[str, str], signed: bytes
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a request to a further route of a peer's `app`, with a proof that we signed `signed`.

        Raise PeerGoneError if there is no connection to the peer.
        """
        link = self._links.get(name)
        if link is None or link.session is None or self._session is None:
            raise PeerGoneError(name)
        return self._session.post(
            f"{self._scheme}://{link.address}{path}",
            data=body,
            headers={**headers, **link.session.headers(signed)},
            allow_redirects=False,
            ssl=self._tls.client if self._tls is not None else True,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        )

    @property
    def _scheme(self) -> str:
        return "https" if self._tls is not None else "http"

    def _end(self, name: str) -> None:
        task = asyncio.get_running_loop().create_task(self._links.pop(name).stop(), name=f"end of the link to {name}")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _accept(self, request: web.Request) -> web.StreamResponse:
        session: PeerSession = request[PEER]
        try:
            return await self._serve(request, session)
        finally:
            self._proofs.end(session)

    async def _serve(self, request: web.Request, session: PeerSession) -> web.StreamResponse:
        socket = web.WebSocketResponse(heartbeat=SILENCE_S, max_msg_size=MAX_MESSAGE_BYTES + SEAL_BYTES, compress=False)
        try:
            await socket.prepare(request)
            await socket.send_bytes(session.welcome)
        except ConnectionError:
            # The connecting caller did not wait.
            return socket
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                break
            try:
                self._take(session, socket, _FORM.decode(session.from_client.open(message.data)))
            except UnreadableMessageError as error:
                log_event("peer_message_rejected", level=logging.WARNING, peer=session.peer.tag, reason=str(error))
                break
        return socket

    def _take(self, session: PeerSession, socket: web.WebSocketResponse, message: Call | LinkAnswer | Notice) -> None:
        if isinstance(message, Notice):
            handler = self._notices.get(message.kind)
            if handler is not None:
                handler(session.peer, message.body)
        elif isinstance(message, Call):
            task = asyncio.create_task(self._answer(session, socket, message), name="answer to a peer")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, session: PeerSession, socket: web.WebSocketResponse, call: Call) -> None:
        handler = self._calls.get(call.kind)
        if handler is None or len(self._answering) > MAX_UNDER_WAY:
            answer = LinkAnswer(call.call_id, error="unknown" if handler is None else "busy")
        else:
            try:
                answer = LinkAnswer(call.call_id, await handler(session.peer, call.body))
            except Exception as error:  # noqa: BLE001 - the edge of the task: the caller must learn that it failed
                log_event("crashed", level=logging.ERROR, error=type(error).__name__, where=call.kind)
                answer = LinkAnswer(call.call_id, error=type(error).__name__)
        with suppress(ConnectionError):
            await socket.send_bytes(session.from_server.seal(_FORM.encode(answer)))


def _followed(tls: LiveTls) -> ssl.SSLContext:
    """Return a context for a listening socket that uses the current TLS settings at each handshake."""
    context = tls.server

    def take_current(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = tls.server

    # OpenSSL calls it in every handshake, whether or not the client names a host.
    context.sni_callback = take_current
    return context


class _Link:
    """Our connection to one peer, which reconnects after a loss. Mutable: socket, session, and waiting calls."""

    def __init__(self, name: str, address: str, proofs: PeerProofs, tls: LiveTls | None) -> None:
        self.address = address
        self.refused = False
        self.session: PeerSession | None = None
        """None: not connected."""
        self._name, self._tls, self._proofs = name, tls, proofs
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[LinkAnswer]] = {}
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
        """Connect immediately. Until this attempt is refused too, the peer does not count as ended."""
        self.refused = False
        self._again.set()

    async def ask(self, kind: str, body: bytes, timeout_s: float) -> bytes:
        if not self.connected:
            raise PeerGoneError(self._name) if self.refused else PeerSilentError(self._name)
        self._next_id += 1
        call = Call(self._next_id, kind, body)
        answered: asyncio.Future[LinkAnswer] = asyncio.get_running_loop().create_future()
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
        while True:
            try:
                async with asyncio.timeout(2 * CONNECT_S):
                    socket, proved = await self._open(session)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                # Only a refused connection shows that the process has ended; silence proves nothing.
                self.refused = isinstance(error, aiohttp.ClientConnectorError) and isinstance(
                    error.os_error, ConnectionRefusedError
                )
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._again.wait()
                self._again.clear()
                pause_s = min(2 * pause_s, RETRY_MAX_S)
                continue
            pause_s, self.refused, self._socket, self.session = RETRY_S, False, socket, proved
            sender = asyncio.create_task(self._send_all(socket, proved), name=f"to {self._name}")
            try:
                await self._read(socket, proved)
            finally:
                self._socket = self.session = None
                sender.cancel()
                await asyncio.gather(sender, return_exceptions=True)
                await socket.close()
                self._fail_waiting()

    async def _open(self, session: aiohttp.ClientSession) -> tuple[aiohttp.ClientWebSocketResponse, PeerSession]:
        """Return a connection on which both ends have proved themselves; raise ClientError if the peer has not."""
        tls: ssl.SSLContext | bool = self._tls.client if self._tls is not None else True
        url = f"{'https' if self._tls is not None else 'http'}://{self.address}{PATH}"
        async with session.get(url, ssl=tls, allow_redirects=False) as response:
            challenge = response.headers.get(CHALLENGE_HEADER, "")
        headers, proved = self._proofs.answer(challenge)
        socket = await session.ws_connect(
            url, headers=headers, ssl=tls, heartbeat=SILENCE_S, max_msg_size=MAX_MESSAGE_BYTES + SEAL_BYTES
        )
        try:
            # Nothing is sent before the peer has proved itself: another process may have taken its port.
            welcome = await socket.receive()
            if welcome.type is not WSMsgType.BINARY or not hmac.compare_digest(welcome.data, proved.welcome):
                raise aiohttp.ClientError("the peer does not prove that it holds the fleet secret")
        except BaseException:
            await socket.close()
            raise
        return socket, proved

    async def _send_all(self, socket: aiohttp.ClientWebSocketResponse, proved: PeerSession) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._unsent:
                data = self._unsent.popleft()
                self._unsent_bytes -= len(data)
                # Sealed when it is sent, because seals count the messages in order.
                await socket.send_bytes(proved.from_client.seal(data))

    async def _read(self, socket: aiohttp.ClientWebSocketResponse, proved: PeerSession) -> None:
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                return
            try:
                answer = _FORM.decode(proved.from_server.open(message.data))
            except UnreadableMessageError as error:
                log_event("peer_message_rejected", level=logging.WARNING, peer=self._name, reason=str(error))
                return
            if isinstance(answer, LinkAnswer):
                waiting = self._waiting.get(answer.call_id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)

    def _fail_waiting(self) -> None:
        """Fail the waiting calls of a lost connection, which the peer may have received. Unsent notices are lost."""
        self._unsent.clear()
        self._unsent_bytes = 0
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(PeerSilentError(self._name))
