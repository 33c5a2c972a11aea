"""One connection to the Redis server, from opening to loss: subscriptions, sends, and comparisons."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.base.event_log import log_event
from gateway.bus.bus_frame import Frame, FrameSeal, UnreadableFrameError
from gateway.bus.bus_outbox import BusQuestion, Outbox, Outgoing
from gateway.bus.bus_replica import BusReplica
from gateway.bus.bus_subscribers import covers
from gateway.bus.redis_scripts import (
    APPEND,
    CLAIM,
    PUBLISH,
    BusNames,
    installation_prefix,
    is_prefix,
    meeting_point,
)
from kvstore.keys.keyring import Keyring

_BATCH = 256
_KINDS = ("v", "s")
_RECEIVED_AT_A_TIME = 16
"""Messages processed before outgoing items get their turn."""
_LOGGED_CHARACTERS = 80
_ENTRY_ID = re.compile(rb"(?:[0-9]{1,18}-[0-9]{1,18})?")
"""Empty for a message that is not stored."""
_CANCEL_AGAIN_S = 0.1
# The script for claims needs an end.
_FOR_EVER_MS = 100 * 365 * 86_400_000


class MovedError(Exception):
    """The installation's keys have another prefix now, which the next session uses."""


class Ports:
    """The parts of the bus that sessions share. Sessions count `rejected` and `unreadable`.

    `names` are the installation's names: those derived from the secret until the first session has read them from the
    server.
    """

    def __init__(
        self,
        keyring: Keyring,
        replica: BusReplica,
        outbox: Outbox,
        deliver: Callable[[str, bytes], object],
        max_topics: int,
        max_entries: int,
        max_stream_bytes: int,
    ) -> None:
        self.prefix = installation_prefix(keyring.used)
        self.names = BusNames(self.prefix)
        self.meeting_points = tuple(meeting_point(secret) for secret in keyring.every)
        """The key of the current secret is first."""
        self.seal = FrameSeal(keyring)
        self.replica = replica
        self.outbox = outbox
        self.deliver = deliver
        self.max_topics = max_topics
        self.max_entries = max_entries
        self.max_stream_bytes = max_stream_bytes
        self.rejected = 0
        self.unreadable = 0
        self.received_until: dict[str, str] = {}
        """Stream → id of the last entry received, from which the next session continues."""
        self.to_reseal: set[str] = set()
        """Topics whose value on the server has no seal of the current secret."""

    def reject(self, topic: str, reason: str) -> None:
        """Count an ignored message, and log the first one."""
        self.unreadable += 1
        if self.unreadable == 1:
            log_event(
                "bus_message_rejected",
                level=logging.WARNING,
                topic=topic[:_LOGGED_CHARACTERS],
                reason=reason,
                remedy="see who else writes to the server that REDIS_URL names, and whether all processes have one "
                "version and one HEADWAY_FLEET_SECRET; more are counted in headway_bus_unreadable_total",
            )


def client_maker(url: str, *, connect_s: float, answer_s: float) -> Callable[[], Any]:
    """Return a function that creates a client of the server; raise ValueError if `url` is no Redis URL."""

    def make() -> Any:
        return Redis.from_url(
            url,
            protocol=2,
            single_connection_client=True,
            socket_connect_timeout=connect_s,
            socket_timeout=answer_s,
            # A failed command ends the session, and the next one compares all values: redis-py must not repeat it.
            retry=Retry(NoBackoff(), 0),
        )

    # Made once here, so that a wrong URL raises in the caller instead of in the bus's thread.
    make()
    return make


class RedisSession:
    """A session with two sockets: one receives, one sends and queries. `sending` is set while items are being sent.

    `patterns` maps each pattern to the stream id at which it was first followed; sessions share and fill it. Mutable:
    the waiters for confirmed subscriptions, the patterns that this session follows, and the scripts' names.
    """

    def __init__(
        self, client: Any, ports: Ports, patterns: dict[str, str], work: asyncio.Event, compare_s: float
    ) -> None:
        self.sending = False
        self._client = client
        self._ports = ports
        self._work = work
        self._compare_s = compare_s
        self._pubsub: PubSub = client.pubsub()
        self._patterns = patterns
        self._followed: set[str] = set()
        self._confirmed: dict[str, asyncio.Future[None]] = {}
        self._publish = self._append = ""

    async def open(self) -> None:
        """Connect, follow the patterns, and process what happened during the disconnection."""
        self._publish = await self._client.script_load(PUBLISH)
        self._append = await self._client.script_load(APPEND)
        await self._meet()
        # A subscription of its own, so that the receiving socket exists before anything is followed.
        await self._pubsub.subscribe(self._ports.names.channel("hello", self._ports.replica.origin))
        patterns = list(self._patterns)
        for pattern in patterns:
            await self._subscribe(pattern)
        backlog = await self._receive_until_confirmed(1 + len(_KINDS) * len(patterns))
        self._followed.update(patterns)
        # After the confirmations: what is published during the comparison comes as a message.
        await self._compare(patterns)
        await self._catch_up(patterns)
        # The server's clock, because it makes the ids of stream entries.
        now = await self._server_time()
        for pattern in patterns:
            self._patterns[pattern] = self._patterns[pattern] or now
        # After the catch-up: numbers must rise, and a newer entry taken first would make the missed ones old.
        for message in backlog:
            self._take(message)

    async def serve(self) -> None:
        """Receive, send and compare until the connection fails; raise its error."""
        tasks = [asyncio.create_task(work) for work in (self._receive(), self._send(), self._keep_comparing())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            await _end(tasks)

    async def close(self) -> None:
        """Close both sockets and wake the waiters for confirmations."""
        for waiting in self._confirmed.values():
            waiting.cancel()
        await self._pubsub.aclose()  # type: ignore[no-untyped-call]
        await self._client.aclose()

    async def follow(self, pattern: str) -> None:
        """Subscribe to `pattern`; return when its values have arrived."""
        loop = asyncio.get_running_loop()
        waiting = [self._confirmed.setdefault(self._channel(kind, pattern), loop.create_future()) for kind in _KINDS]
        await self._subscribe(pattern)
        await asyncio.gather(*waiting)
        self._patterns[pattern] = self._patterns.get(pattern) or await self._server_time()
        self._followed.add(pattern)
        await self._compare([pattern])

    # -- receiving

    async def _subscribe(self, pattern: str) -> None:
        channels = [self._channel(kind, pattern) for kind in _KINDS]
        if pattern.endswith("/"):
            await self._pubsub.psubscribe(*channels)
        else:
            await self._pubsub.subscribe(*channels)

    def _channel(self, kind: str, pattern: str) -> str:
        names = self._ports.names
        return names.pattern(kind, pattern) if pattern.endswith("/") else names.channel(kind, pattern)

    async def _receive_until_confirmed(self, subscriptions: int) -> list[dict[str, Any]]:
        """Return the messages that arrived before the last confirmation."""
        early = []
        while subscriptions:
            async with asyncio.timeout(self._compare_s):
                message = await self._pubsub.get_message(timeout=None)
            if message is not None and message["type"] in ("subscribe", "psubscribe"):
                subscriptions -= 1
            elif message is not None:
                early.append(message)
        return early

    async def _receive(self) -> None:
        """Process messages. After a silence, send a ping to test the connection."""
        silent = taken = 0
        while True:
            message = await self._pubsub.get_message(timeout=self._compare_s)
            if message is not None:
                silent, taken = 0, taken + 1
                self._take(message)
                if taken % _RECEIVED_AT_A_TIME == 0:
                    # Reading never waits while more is there, so outgoing items and new patterns would have to.
                    await asyncio.sleep(0)
                continue
            silent += 1
            if silent > 2:
                raise TimeoutError("the receiving socket is dead")
            await self._pubsub.ping()

    def _take(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind in ("subscribe", "psubscribe"):
            waiting = self._confirmed.pop(message["channel"].decode(), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
        elif kind in ("message", "pmessage"):
            self._take_value(message["channel"].decode(errors="replace"), message["data"])

    def _take_value(self, channel: str, data: bytes) -> bool:
        """Apply a value from a channel. Return False if it was not published with our secret."""
        kind, topic = self._ports.names.topic(channel)
        try:
            if kind == "v":
                self._receive_value(topic, data)
            elif kind == "s":
                entry_id, _, frame = data.partition(b"\n")
                if not _ENTRY_ID.fullmatch(entry_id):
                    # It is not sealed, and the next session asks the server for the entries after it.
                    raise UnreadableFrameError("a stream entry has no Redis id")
                self._receive_entry(topic, entry_id.decode("ascii"), frame)
        except UnreadableFrameError as error:
            self._ports.reject(topic, str(error))
            return False
        return True

    def _receive_value(self, topic: str, data: bytes) -> None:
        frame = self._ports.seal.read("v", topic, data)
        if not frame.sealed_by_used:
            self._ports.to_reseal.add(topic)
        if self._ports.replica.receive(topic, frame):
            self._ports.deliver(topic, frame.value)

    def _receive_entry(self, topic: str, entry_id: str, data: bytes) -> None:
        frame = self._ports.seal.read("s", topic, data)
        if entry_id:
            self._ports.received_until[topic] = entry_id
        if self._ports.replica.is_new_entry(topic, frame):
            self._ports.deliver(topic, frame.value)

    # -- events and losses during the absence

    async def _keep_comparing(self) -> None:
        while True:
            for pattern in [name for name in self._patterns if name not in self._followed]:
                # It was requested while the session was being opened.
                await self.follow(pattern)
            await asyncio.sleep(self._compare_s)
            if await self._meet():
                raise MovedError
            await self._compare(list(self._followed))
            await self._reseal()

    async def _meet(self) -> bool:
        """Agree with the other processes on the installation's key prefix; return whether it has changed.

        The prefix is stored under one key per secret, so that processes before and after each step of a rotation share
        their topics. If these keys differ (the server lost one while processes started), their order decides.
        """
        ports = self._ports
        held: dict[str, str] = {}
        name = ports.prefix
        for point in ports.meeting_points:
            held[point] = await self._claim(point, name)
            if is_prefix(held[point]):
                name = held[point]
        name = next((held[point] for point in sorted(held) if is_prefix(held[point])), name)
        for point, other in held.items():
            if other != name:
                await self._claim(point, name, instead_of=other)
        moved = name != ports.prefix
        ports.prefix, ports.names = name, BusNames(name)
        return moved

    async def _claim(self, point: str, name: str, instead_of: str = "") -> str:
        held: bytes = await self._client.eval(CLAIM, 1, point, name, instead_of, _FOR_EVER_MS)
        return held.decode(errors="replace")

    async def _reseal(self) -> None:
        """Seal values again that will be unreadable once only the current secret is accepted."""
        while self._ports.to_reseal:
            topic = self._ports.to_reseal.pop()
            frame = self._ports.replica.frame(topic)
            if frame is not None and not frame.sealed_by_used:
                await self._client.evalsha(*self._publish_call(topic, frame, "reseal"))

    async def _compare(self, patterns: list[str]) -> None:
        """Fetch values that are newer on the server, and restore those that it has lost or never received."""
        stored = await self._client.hgetall(self._ports.names.versions)
        there = {name.decode(errors="replace"): int(version) for name, version in stored.items()}
        here = self._ports.replica.versions()
        newer = [
            topic
            for topic, version in there.items()
            if version > here.get(topic, -1) and any(covers(pattern, topic) for pattern in patterns)
        ]
        await self._fetch(newer)
        for topic, version in here.items():
            # A value in the outbox is about to be sent anyway.
            if version > there.get(topic, -1) and not self._ports.outbox.waits(topic):
                await self._restore(topic)

    async def _fetch(self, topics: list[str]) -> None:
        for start in range(0, len(topics), _BATCH):
            part = topics[start : start + _BATCH]
            values = await self._client.hmget(self._ports.names.values, part)
            for topic, value in zip(part, values, strict=True):
                if value is not None and not self._take_value(self._ports.names.channel("v", topic), value):
                    await self._restore(topic, "publish")

    async def _restore(self, topic: str, mode: str = "restore") -> None:
        """Store our value on the server. Mode "publish" overwrites any other value."""
        frame = self._ports.replica.frame(topic)
        if frame is not None:
            await self._client.evalsha(*self._publish_call(topic, frame, mode))

    async def _catch_up(self, patterns: list[str]) -> None:
        """Deliver the entries that arrived during the disconnection, if the server still has them."""
        for name in await self._client.smembers(self._ports.names.streams):
            topic = name.decode(errors="replace")
            starts = [
                self._patterns[pattern] for pattern in patterns if self._patterns[pattern] and covers(pattern, topic)
            ]
            if not starts:
                continue
            after = self._ports.received_until.get(topic) or min(starts)
            entries = await self._client.xrange(self._ports.names.stream(topic), f"({after}", "+")
            for entry_id, fields in entries:
                data = entry_id + b"\n" + fields.get(b"frame", b"")
                self._take_value(self._ports.names.channel("s", topic), data)

    async def _server_time(self) -> str:
        seconds, micros = await self._client.time()
        return f"{seconds * 1000 + micros // 1000}-0"

    # -- sending

    async def _send(self) -> None:
        outbox = self._ports.outbox
        while True:
            # Before the outbox is read: an item that comes after that sets it again.
            self._work.clear()
            self.sending = True
            while len(outbox):
                items, questions = outbox.take(_BATCH), outbox.take_questions(_BATCH)
                try:
                    await self._send_batch(items, questions)
                except BaseException:
                    # Cancelled or cut off in between: the next session sends all values and entries again.
                    outbox.put_back(items)
                    for question in questions:
                        question.fail()
                    raise
            self.sending = False
            await self._work.wait()

    def fail_questions(self) -> None:
        """Answer the pending questions with 0 subscribers."""
        while questions := self._ports.outbox.take_questions(_BATCH):
            for question in questions:
                question.fail()

    async def _send_batch(self, items: list[Outgoing], questions: list[BusQuestion]) -> None:
        # Each script is one step by itself.
        pipeline = self._client.pipeline(transaction=False)
        for item in items:
            made = self._append_call if item.is_entry else self._publish_call
            pipeline.evalsha(*made(item.topic, item.frame))
        for question in questions:
            pipeline.execute_command(*question.command)
        answers = await pipeline.execute()
        for question, answer in zip(questions, answers[len(items) :], strict=True):
            question.answer(answer.decode() if isinstance(answer, bytes) else answer)
        for item, answer in zip(items, answers[: len(items)], strict=True):
            if answer == b"-1":
                self._ports.rejected += 1
            elif not item.is_entry and self._ports.replica.settle(item.topic, item.frame, int(float(answer))):
                self._ports.deliver(item.topic, item.frame.value)

    def _publish_call(self, topic: str, frame: Frame, mode: str = "publish") -> tuple[Any, ...]:
        names, most = self._ports.names, self._ports.max_topics
        tail = self._ports.seal.tail("v", topic, frame)
        keys = (names.versions, names.values)
        return (self._publish, 2, *keys, topic, frame.version, tail, names.channel("v", topic), mode, most)

    def _append_call(self, topic: str, frame: Frame) -> tuple[Any, ...]:
        names = self._ports.names
        keys = (names.streams, names.stream(topic), names.stream_bytes)
        data = str(frame.version).encode() + self._ports.seal.tail("s", topic, frame)
        limits = (self._ports.max_entries, self._ports.max_topics, self._ports.max_stream_bytes)
        return (self._append, 3, *keys, topic, data, names.channel("s", topic), *limits)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel these tasks and wait for their end.

    One cancellation is not enough: redis-py sends with `asyncio.wait_for`, which in Python 3.11 swallows a cancellation
    that arrives as its work completes. Such a task would continue to receive, and nothing would ever be sent again.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
