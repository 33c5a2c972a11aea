"""A streamed answer between the engine's socket and the client's: order, early ends, faults, and whose time counts."""

from __future__ import annotations

import asyncio
import weakref
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.pools.engines.connections.engine_connections import engine_address
from gateway.pools.engines.connections.request_connection import AnswerHead, BodyReceiver, ConnectionBrokenError
from gateway.pools.engines.engine_progress import EngineProgress
from gateway.proxy.attempt import Attempt, AttemptFailedError
from gateway.proxy.engine_transport import EngineAnswer, _request_head
from gateway.proxy.forwarded_request import ForwardedRequest
from gateway.proxy.progress_guard import AnswerLimits, ProgressGuard
from gateway.requests.formats.endpoints import BY_PATH, CHAT
from gateway.requests.formats.hit_figures import HIDDEN
from gateway.server.http.client_stream import MessageStream

EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
STREAM = AnswerHead(200, {"content-type": "text/event-stream"})


class Connection:
    """Records what the answer does with the engine's connection. The test delivers what the socket would."""

    def __init__(self, *waiting: bytes) -> None:
        self._waiting = waiting
        self.calls: list[str] = []

    def pass_on(self, receiver: BodyReceiver) -> None:
        for part in self._waiting:
            receiver.receive(part, False)

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def abort(self) -> None:
        self.calls.append("abort")


def answer(connection: Connection, **request: Any) -> tuple[EngineAnswer, ProgressGuard]:
    """Return an answer whose head has arrived, and its guard."""
    engine = cast("Any", SimpleNamespace(lost=False, stuck=False, entry=SimpleNamespace(engine_id="e")))
    limits = AnswerLimits(whole_s=inf)
    asked = ForwardedRequest(BY_PATH[CHAT], b"{}", {}, True, False, **request)
    guard = ProgressGuard(engine, limits)
    return EngineAnswer(Attempt(engine, asked, limits), cast("Any", connection), STREAM, guard), guard


def client() -> tuple[MessageStream, list[bytes]]:
    """Return a client's stream, and what it gets."""
    sent: list[bytes] = []

    async def send(body: bytes) -> None:
        sent.append(body)

    return MessageStream(send), sent


async def test_parts_are_relayed_in_order_and_the_last_one_is_left_for_the_end() -> None:
    got, _ = answer(Connection(EVENT))
    await got.open()
    assert got.take_first() == EVENT
    stream, sent = client()
    progress = EngineProgress()
    relaying = asyncio.create_task(got.relay_to(stream, progress))
    await asyncio.sleep(0)
    got.receive(EVENT, False)
    got.receive(EVENT + DONE, True)
    got.end(None)
    await relaying
    assert (b"".join(sent), got.last, progress.chunks) == (EVENT, EVENT + DONE, 3)


async def test_a_relayed_answer_with_a_load_order_is_freed_without_a_garbage_collection() -> None:
    got, guard = answer(Connection(EVENT), orders=True)
    await got.open()
    got.receive(DONE, True)
    got.end(None)
    stream, _ = client()
    await got.relay_to(stream, EngineProgress())
    stream.follow(None)
    prompt = weakref.ref(got)
    del got, guard
    assert prompt() is None


async def test_an_answer_that_is_complete_before_the_response_starts_is_one_part() -> None:
    got, _ = answer(Connection(EVENT))
    await got.open()
    got.receive(DONE, True)
    got.end(None)
    stream, sent = client()
    await got.relay_to(stream, EngineProgress())
    assert (sent, got.last) == ([], EVENT + DONE)


async def test_a_stream_that_breaks_right_after_its_beginning_is_relayed_that_far() -> None:
    got, _ = answer(Connection(EVENT))
    await got.open()
    got.end("gone")
    stream, sent = client()
    with pytest.raises(ConnectionBrokenError):
        await got.relay_to(stream, EngineProgress())
    assert sent == [EVENT]


async def test_a_stream_that_breaks_before_its_content_fails_the_attempt() -> None:
    got, _ = answer(Connection(b": comment\n\n"))
    opening = asyncio.create_task(got.open())
    await asyncio.sleep(0)
    got.end("gone")
    with pytest.raises(ConnectionBrokenError):
        await opening


async def test_hits_that_cannot_be_hidden_end_the_stream() -> None:
    connection = Connection(EVENT)
    got, _ = answer(connection, cached_tokens=HIDDEN)
    await got.open()
    stream, _ = client()
    relaying = asyncio.create_task(got.relay_to(stream, EngineProgress()))
    await asyncio.sleep(0)
    got.receive(b'data: not JSON "cached_tokens"\n\n', False)
    with pytest.raises(AttemptFailedError):
        await relaying
    assert connection.calls[-1] == "abort"


async def test_a_fault_of_the_scan_is_raised_in_the_requests_task(monkeypatch: pytest.MonkeyPatch) -> None:
    got, _ = answer(Connection(EVENT))
    await got.open()
    stream, _ = client()
    relaying = asyncio.create_task(got.relay_to(stream, EngineProgress()))
    await asyncio.sleep(0)
    monkeypatch.setattr(got.stream, "feed", lambda _: 1 / 0)
    got.receive(EVENT, False)
    with pytest.raises(ZeroDivisionError):
        await relaying


async def test_a_long_beginning_waits_at_the_engine_until_the_response_starts() -> None:
    connection = Connection(EVENT, EVENT * 2000)
    got, _ = answer(connection)
    await got.open()
    assert connection.calls == ["pause"]
    stream, sent = client()
    relaying = asyncio.create_task(got.relay_to(stream, EngineProgress()))
    await asyncio.sleep(0)
    got.end(None)
    await relaying
    assert connection.calls[1] == "resume"
    assert b"".join(sent) == EVENT * 2001


def test_while_the_client_does_not_read_its_time_counts() -> None:
    connection = Connection()
    got, guard = answer(connection)
    guard.silent_s = 5.0
    got.pause()
    assert (guard.sending, connection.calls) == (True, ["pause"])
    got.resume()
    assert (guard.sending, guard.silent_s, connection.calls) == (False, 0.0, ["pause", "resume"])


def test_a_header_cannot_begin_another_line() -> None:
    address = engine_address("http://engine:8000/base")
    head = _request_head(address, CHAT, {"x-request-id": "1"})
    assert head.startswith(b"POST /base/v1/chat/completions HTTP/1.1\r\nhost: engine:8000\r\n")
    assert head.endswith(b"\r\nx-request-id: 1\r\n\r\n")
    for value in ("a\r\nb: c", "a\nb", "a\0"):
        with pytest.raises(ValueError, match="line end"):
            _request_head(address, CHAT, {"x-session-id": value})
