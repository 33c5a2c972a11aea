"""The bus delivers only values sealed with the fleet secret."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.bus.bus_frame import Frame, FrameSeal, UnreadableFrameError
from gateway.bus.bus_outbox import Outbox
from gateway.bus.bus_replica import BusReplica
from gateway.bus.redis_scripts import BusNames, installation_prefix
from gateway.bus.redis_session import Ports, RedisSession
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
            KEYRING, replica, outbox, lambda topic, value: self.delivered.append((topic, value)), 8, 8, 1 << 20
        )
        self.session = RedisSession(SimpleNamespace(pubsub=lambda: None), self.ports, {}, asyncio.Event(), 1.0)


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
