"""The local hub's protocol, limits, and access rights. Tests of the bus over it: test_bus, test_redis_bus."""

from __future__ import annotations

import socket
import stat
import threading
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.bus import hub_store
from gateway.bus.hub_store import HubStore
from gateway.bus.redis_bus import RedisBus
from gateway.bus.resp import NoCommandError, encode, read_command
from kvstore.keys.keyring import Keyring
from tests.private_hub import PrivateHub, private_hub

KEYRING = Keyring.of(b"a secret of the fleet")
FLOOD = 5000


def asked(hub: PrivateHub, request: bytes) -> bytes:
    """Send bytes and return the hub's full reply; empty if it closed the connection."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        client.connect(urlsplit(hub.url).path)
        client.sendall(request)
        return client.recv(65536)


@pytest.mark.parametrize("cut", range(1, 33))
def test_a_command_is_read_whole_from_any_fragments(cut: int) -> None:
    data = b"*2\r\n$7\r\nPUBLISH\r\n$5\r\na\r\nbc\r\n*1"
    buffer = bytearray(data[:cut])
    read = read_command(buffer, 0)
    assert (read is None) == (cut < len(data) - 2)
    buffer += data[cut:]
    assert read_command(buffer, 0) == ([b"PUBLISH", b"a\r\nbc"], len(data) - 2)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n", b"*0\r\n", b"*-1\r\n", b"*1\r\n:1\r\n", b"*1\r\n$99999999999\r\n"]
)
def test_malformed_commands_end_the_connection(data: bytes) -> None:
    with pytest.raises(NoCommandError):
        read_command(bytearray(data + b"x" * 64), 0)
    with private_hub() as hub:
        assert asked(hub, data + b"x" * 64) == b""


def test_unknown_commands_are_errors_and_keep_the_connection() -> None:
    with private_hub() as hub:
        answer = asked(hub, encode([b"FLUSHALL"]) + encode([b"PSUBSCRIBE", b"no star"]) + encode([b"PING"]))
    first, second, last = answer.split(b"\r\n")[:3]
    assert (first[:4], second[:4], last) == (b"-ERR", b"-ERR", b"+PONG")


def test_only_its_owner_can_open_the_socket_and_no_file_remains() -> None:
    with private_hub() as hub:
        path = Path(urlsplit(hub.url).path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


def test_a_stream_is_also_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_store, "MAX_STREAM_BYTES", 100)
    store = HubStore(lambda: 1.0)
    for number in range(10):
        store.append([b"streams", b"s"], [b"s", b"%d" % number * 30, b"channel", b"1000", b"10"])
    assert [frame[:1] for _, frame in store.entries_after(b"s", b"0-0")] == [b"7", b"8", b"9"]


def test_stream_ids_increase_even_if_the_clock_goes_back() -> None:
    times = iter((5.0, 1.0, 5.0, 6.0))
    store = HubStore(lambda: next(times))
    ids = [store.append([b"streams", b"s"], [b"s", b"e", b"c", b"9", b"9"])[0] for _ in range(4)]
    assert ids == [b"5000-0", b"5000-1", b"5000-2", b"6000-0"]
    assert [entry_id for entry_id, _ in store.entries_after(b"s", ids[1])] == ids[2:]


def test_the_oldest_claims_are_evicted_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_store, "MAX_CLAIMS", 2)
    store = HubStore(lambda: 1.0)
    for name in (b"a", b"b", b"c"):
        store.claim(name, b"first", b"", 300)
    assert [store.claim(name, b"second", b"", 300) for name in (b"c", b"a")] == [b"first", b"second"]


def test_sending_does_not_wait_for_a_backlog_of_received_messages() -> None:
    received: list[int] = []
    at: list[int] = []
    published = threading.Event()
    with (
        private_hub() as hub,
        closing(RedisBus(hub.url, KEYRING)) as busy,
        closing(RedisBus(hub.url, KEYRING)) as other,
    ):

        def receive(_topic: str, _value: bytes) -> None:
            received.append(0)
            time.sleep(0.0005)
            if len(received) == 100:
                busy.publish("words", b"from the one that is busy")

        def answered(_topic: str, _value: bytes) -> None:
            at.append(len(received))
            published.set()

        busy.subscribe("flood", receive)
        other.subscribe("words", answered)
        for _ in range(FLOOD):
            other.append("flood", b"")
        assert published.wait(60)
    # The three turns of the loop that sending takes, with the messages received in each of them.
    assert 100 <= at[0] < 500
