"""The bus delivers only values sealed with the fleet secret, and no command harms the hub or its clients."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.bus.bus_frame import Frame, FrameSeal, UnreadableFrameError
from gateway.bus.bus_outbox import Outbox
from gateway.bus.bus_replica import BusReplica
from gateway.bus.hub_store import HubStore
from gateway.bus.local_hub import _Connection, _Hub
from gateway.bus.redis_scripts import APPEND, CLAIM, PUBLISH, BusNames, installation_prefix
from gateway.bus.redis_session import Ports, RedisSession
from gateway.bus.resp import encode
from kvstore.keys.keyring import Keyring
from tests.fuzz.mutations import near

KEYRING = Keyring.of(b"the fleet's secret, long enough for all")
SEAL, OTHER = FrameSeal(KEYRING), FrameSeal(Keyring.of(b"another fleet's secret, as long as ours"))
NAMES = BusNames(installation_prefix(KEYRING.used))
ORIGIN = "0123456789abcdef"


def sealed(kind: str, topic: str, seq: int, value: bytes, seal: FrameSeal = SEAL) -> bytes:
    return b"1" + seal.tail(kind, topic, Frame(1, ORIGIN, seq, value))


PUBLISHED = [
    ("v", "topic", 7, b"a value"),
    ("s", "topic", 8, b"an entry"),
    ("v", "a/b", 9, b"b"),
    ("s", "a/b", 10, b""),
]
"""Kind, topic, number and value of our fleet's publications."""
GENUINE = {item: sealed(*item) for item in PUBLISHED}
FOREIGN = [sealed("v", "topic", 7, b"a value", OTHER), sealed("s", "a/b", 11, b"forged", OTHER)]
FRAMES = [*GENUINE.values(), *FOREIGN]


@given(
    data=near(FRAMES) | st.lists(st.sampled_from(FRAMES), max_size=2).map(b"".join) | st.binary(max_size=100),
    kind=st.sampled_from("vs"),
    topic=st.sampled_from(["topic", "a/b", ""]) | st.text(max_size=4),
)
@example(data=FRAMES[0], kind="v", topic="topic")
def test_a_frame_is_accepted_only_exactly_as_it_was_sealed(data: bytes, kind: str, topic: str) -> None:
    try:
        frame = SEAL.read(kind, topic, data)
    except UnreadableFrameError:
        return
    assert (kind, topic, frame.seq, frame.value) in GENUINE
    assert frame.origin == ORIGIN


class Session:
    """The values that one process accepts from a server to which anyone may have written."""

    def __init__(self) -> None:
        self.delivered: list[tuple[str, bytes]] = []
        outbox = Outbox(8, 8, 1 << 20, lambda: None)
        replica = BusReplica(lambda: 1.0)
        self.ports = Ports(
            KEYRING, SEAL, replica, outbox, lambda topic, value: self.delivered.append((topic, value)), 8, 8, 1.0
        )
        self.session = RedisSession(SimpleNamespace(pubsub=lambda: None), self.ports, {}, asyncio.Event())


CHANNELS = [NAMES.channel(kind, topic) for kind, topic, *_ in GENUINE]
ENTRY_IDS = [b"", b"1795800000000-0", b"(", b"-", b"99999999999999999999-0", b"\xff", b"$", b"+"]


@given(
    st.lists(
        st.tuples(
            near([item.encode() for item in CHANNELS]) | st.sampled_from([item.encode() for item in CHANNELS]),
            st.sampled_from(["message", "pmessage"]),
            st.sampled_from([b"", *(entry_id + b"\n" for entry_id in ENTRY_IDS)]),
            st.sampled_from(FRAMES) | near(FRAMES),
        ),
        max_size=5,
    )
)
def test_only_values_sealed_for_a_channel_are_delivered_and_only_once(
    messages: list[tuple[bytes, str, bytes, bytes]],
) -> None:
    session = Session()
    for channel, kind, entry_id, frame in messages:
        session.session._take({"type": kind, "channel": channel, "data": entry_id + frame})
    allowed = [(topic, value) for _, topic, _, value in GENUINE]
    assert all(session.delivered.count(item) == 1 and item in allowed for item in session.delivered)
    for position in session.ports.received_until.values():
        milliseconds, _, number = position.partition("-")
        assert int(milliseconds) < 1 << 63
        assert int(number) < 1 << 63


COMMANDS = [
    b"PING", b"CLIENT", b"SCRIPT", b"EVALSHA", b"EVAL", b"PUBLISH", b"SUBSCRIBE", b"PSUBSCRIBE", b"HGETALL", b"HMGET",
    b"SMEMBERS", b"XRANGE", b"TIME", b"FLUSHALL", b"ping", b"",
]  # fmt: skip
WORDS = [
    PUBLISH.encode(), APPEND.encode(), CLAIM.encode(), b"LOAD", b"0", b"1", b"2", b"-1", b"9" * 400, b"9" * 5000,
    b"(1-1", b"(1-", b"(", b"+", b"a*", b"*", b"a\\*", b"topic", b"publish", b"restore", b"1e400", b"nan", b"\xff",
    b"1" * 19,
]  # fmt: skip
CALLS = [
    [b"EVAL", PUBLISH, b"2", b"versions", b"values", b"topic", b"1", b":tail", b"channel", b"publish", b"9"],
    [b"EVAL", APPEND, b"2", b"streams", b"stream", b"topic", b"frame", b"channel", b"9", b"9"],
    [b"EVAL", CLAIM, b"1", b"claimed", b"holder", b"", b"1000"],
    [b"XRANGE", b"stream", b"(0-0", b"+"],
]


class FakeTransport(asyncio.Transport):
    """Store the written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False

    def write(self, data: Any) -> None:
        """Store the bytes."""
        self.written += bytes(data)

    def abort(self) -> None:
        """Record the abort."""
        self.aborted = True

    def is_closing(self) -> bool:
        """Return whether it was aborted."""
        return self.aborted

    def get_write_buffer_size(self) -> int:
        """Return 0: everything is sent at once."""
        return 0


def opened(hub: _Hub) -> tuple[_Connection, FakeTransport]:
    connection, transport = _Connection(hub), FakeTransport()
    connection.connection_made(transport)
    return connection, transport


def _encoded(words: list[bytes | str]) -> bytes:
    return encode([word if isinstance(word, bytes) else word.encode() for word in words])


_changed = st.tuples(st.sampled_from(CALLS), st.integers(0, 11), st.sampled_from(WORDS)).map(
    lambda of: _encoded([*of[0][: of[1]], of[2], *of[0][of[1] + 1 :]])
)
_any = st.tuples(st.sampled_from(COMMANDS), st.lists(st.sampled_from(WORDS), max_size=9)).map(
    lambda of: _encoded([of[0], *of[1]])
)


@given(
    pieces=st.lists(_changed | _any | near([_encoded(item) for item in CALLS]) | st.binary(max_size=40), max_size=6),
    cut=st.integers(0, 3000),
)
@example(pieces=[_encoded([*CALLS[2][:-1], b"9" * 400])], cut=3000)
def test_no_bytes_harm_the_hub_or_its_other_clients(pieces: list[bytes], cut: int) -> None:
    hub = _Hub()
    hub.store = HubStore(lambda: 1.0)
    (stranger, sent), (right, answers) = opened(hub), opened(hub)
    right.data_received(encode([b"SUBSCRIBE", b"news"]))
    data = b"".join(pieces)
    for part in (data[:cut], data[cut:]):
        if not sent.aborted:
            stranger.data_received(part)
    stranger.connection_lost(None)
    assert hub.connections == {right}
    answers.written = b""
    right.data_received(encode([b"PUBLISH", b"news", b"x"]) + encode([b"TIME"]))
    message = encode([b"message", b"news", b"x"])
    assert answers.written == message + encode(1) + encode([b"1", b"0"])
    right.connection_lost(None)
    assert not hub._channels
    assert not hub._patterns
