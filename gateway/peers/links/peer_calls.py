"""Calls between a fleet's gateways over the bus: each gateway answers for its own decisions.

An id names the gateway that made it (request_head.TaggedIds). The gateway that a load balancer chose therefore asks
that gateway and relays its answer. Prompts are never sent.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

import msgspec

from gateway.base.event_log import log_event
from gateway.bus.bus import Bus, BusAwayError, subscribe_on_loop
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.contracts.wire import MIB, UnreadableMessageError, WireForm
from gateway.server.http.openai_error import ApiError
from gateway.server.http.request_head import TaggedIds, tag_of

TOPIC_PREFIX = "peers/"
ANSWER_S = 2.0
MAX_UNDER_WAY = 1024
"""Limit of running calls of others, and of own calls that wait. Further calls are rejected."""

Handler = Callable[[ApiKeyEntry, str, bytes], Awaitable[bytes]]
"""Answers a call at the gateway that owns its subject: caller, subject, body. Raises ApiError."""


class UnknownPeerError(Exception):
    """No running gateway has this name; its decisions are lost."""


class PeerCall(msgspec.Struct, frozen=True, tag="call"):
    """One gateway's request to another for a caller whose key it has checked."""

    call_id: str
    reply_to: str
    verb: str
    subject: str
    caller: ApiKeyEntry
    body: bytes


class PeerAnswer(msgspec.Struct, frozen=True, tag="answer"):
    """The answer's body, or the error to raise."""

    call_id: str
    body: bytes = b""
    status: int = 200
    message: str = ""
    code: str = ""
    param: str | None = None
    retry_after_s: float | None = None


_FORM: WireForm[PeerCall | PeerAnswer] = WireForm(PeerCall | PeerAnswer, "a peer's message", limit=2 * MIB)  # type: ignore[arg-type]  # a union is no type object


class PeerCalls:
    """Calls at one gateway. `start` and `stop` run on its event loop, as does everything except the bus callback.

    Mutable: own calls that wait for an answer, and the tasks that answer calls of others.
    """

    def __init__(self, bus: Bus, ids: TaggedIds) -> None:
        self._bus = bus
        self.tag = ids.tag
        self.answer_s = ANSWER_S
        self._handlers: dict[str, Handler] = {}
        self._waiting: dict[str, asyncio.Future[PeerAnswer]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._unsubscribe: Callable[[], None] = lambda: None

    def serve(self, verb: str, handler: Handler) -> None:
        """Answer calls of this verb, from other gateways and from this one."""
        self._handlers[verb] = handler

    def start(self) -> None:
        """Accept calls from the other gateways."""
        self._unsubscribe = subscribe_on_loop(self._bus, TOPIC_PREFIX + self.tag, self._take)

    async def stop(self) -> None:
        """End the running calls."""
        self._unsubscribe()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def at_owner(self, verb: str, made_id: str, caller: ApiKeyEntry, subject: str, body: bytes = b"") -> bytes:
        """Return the answer of the gateway that made the id; raise the ApiError raised there."""
        tag = tag_of(made_id)
        if tag in ("", self.tag):
            return await self._handlers[verb](caller, subject, body)
        try:
            return await self.ask(tag, verb, caller, subject, body)
        except UnknownPeerError:
            message = "The gateway that made this decision has ended, and its reservations with it."
            raise ApiError(404, message, "not_found") from None

    async def ask(self, tag: str, verb: str, caller: ApiKeyEntry, subject: str, body: bytes = b"") -> bytes:
        """Return the answer of the gateway with this tag; raise ApiError, or UnknownPeerError if there is no such
        gateway.
        """
        if len(self._waiting) >= MAX_UNDER_WAY:
            raise _away("Too many calls are waiting for other gateways; retry.")
        call = PeerCall(secrets.token_hex(8), self.tag, verb, subject, caller, body)
        answered: asyncio.Future[PeerAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[call.call_id] = answered
        try:
            async with asyncio.timeout(self.answer_s):
                # The bus counts the receivers: without one, no process with this tag runs.
                if not await asyncio.wrap_future(self._bus.notify(TOPIC_PREFIX + tag, _FORM.encode(call))):
                    raise UnknownPeerError
                answer = await answered
        except (BusAwayError, TimeoutError):
            raise _away("The gateway that made this decision is unreachable; retry.") from None
        finally:
            del self._waiting[call.call_id]
        if answer.status != 200:
            raise ApiError(
                answer.status, answer.message, answer.code, param=answer.param, retry_after_s=answer.retry_after_s
            )
        return answer.body

    def _take(self, value: bytes) -> None:
        try:
            message = _FORM.decode(value)
        except UnreadableMessageError:
            # A gateway of another version: it receives nothing from us and reports so to its caller.
            return
        if isinstance(message, PeerAnswer):
            waiting = self._waiting.get(message.call_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif len(self._answering) >= MAX_UNDER_WAY:
            self._reply(message, _rejection(message, _away("The gateway that made this decision is busy; retry.")))
        else:
            task = asyncio.create_task(self._answer(message), name="answer to a peer")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, call: PeerCall) -> None:
        handler = self._handlers.get(call.verb)
        try:
            if handler is None:
                raise ApiError(501, "The gateway that made this decision runs another version.", "not_implemented")
            answer = PeerAnswer(call.call_id, await handler(call.caller, call.subject, call.body))
        except ApiError as error:
            answer = _rejection(call, error)
        except Exception as error:  # noqa: BLE001 - the edge of the task: the caller must learn that it failed
            log_event("crashed", level=logging.ERROR, error=type(error).__name__, where=call.verb)
            failed = ApiError(
                500, "The gateway that made this decision failed; the error is in its log.", "internal_error"
            )
            answer = _rejection(call, failed)
        self._reply(call, answer)

    def _reply(self, call: PeerCall, answer: PeerAnswer) -> None:
        self._bus.notify(TOPIC_PREFIX + call.reply_to, _FORM.encode(answer))


def _rejection(call: PeerCall, error: ApiError) -> PeerAnswer:
    return PeerAnswer(call.call_id, b"", error.status, error.message, error.code, error.param, error.retry_after_s)


def _away(message: str) -> ApiError:
    return ApiError(503, message, "peer_unavailable", retry_after_s=1.0)
