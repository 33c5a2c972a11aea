"""The websocket: permissions, frames, and disconnects."""

from __future__ import annotations

import asyncio
import json

import pytest
from django.contrib.auth.models import AnonymousUser, User
from uvicorn.protocols.utils import ClientDisconnected

from gateway.contracts.fleet_sample import FleetSample
from tests.patience import until
from tests.web.live.frame_reader import apply_column, read_frame
from tests.web.live.socket_client import APP, OneSession, SocketClient
from web.live.consumers import BAD_MESSAGE, SIGNED_OUT, STALLED, FleetConsumer
from web.live.feed import FleetFeed
from web.live.socket_origin import SameOrigin

# A consumer gives its database connection back, even one it never used.
pytestmark = pytest.mark.django_db(transaction=True)


async def test_anonymous_viewer_gets_a_close_code(feed: FleetFeed) -> None:
    communicator = SocketClient(AnonymousUser())
    await communicator.connect()
    assert (await communicator.receive_output())["code"] == SIGNED_OUT
    await communicator.wait()


async def test_people_who_must_add_a_second_factor_first_see_no_frame(feed: FleetFeed) -> None:
    communicator = SocketClient()
    communicator.scope["session"] = OneSession("a-session", enrolling=True)
    assert await communicator.connect()
    assert (await communicator.receive_output())["code"] == SIGNED_OUT
    assert not feed._viewers


@pytest.mark.parametrize("origin", [b"", b"http://evil.example"])
async def test_foreign_or_missing_origin_is_rejected(feed: FleetFeed, origin: bytes) -> None:
    communicator = SocketClient(app=SameOrigin(APP), origin=origin)
    assert not await communicator.connect()


async def test_viewer_gets_a_keyframe_and_then_columns(feed: FleetFeed, samples: list[FleetSample]) -> None:
    feed.take(samples[0])
    communicator = SocketClient()
    assert await communicator.connect()
    state = read_frame(await communicator.receive())
    assert state.head["kind"] == "keyframe"
    for sample in samples[1:12]:
        feed.take(sample)
        apply_column(state, read_frame(await communicator.receive(), 4, 2))
    assert repr(state) == repr(read_frame(feed.keyframe()[1]))
    await communicator.disconnect()


async def test_flood_of_requests_gets_one_keyframe_and_no_more_bytes(
    feed: FleetFeed, samples: list[FleetSample]
) -> None:
    feed.take(samples[0])
    communicator = SocketClient()
    await communicator.connect()
    sent = len(await communicator.receive())
    for _ in range(200):
        await communicator.say(json.dumps({"type": "keyframe"}))
    sent += len(await communicator.receive())
    while not await communicator.receive_nothing():
        sent += len(await communicator.receive())
    assert sent == 2 * len(feed.keyframe()[1])
    await communicator.disconnect()


async def test_viewer_that_missed_a_frame_may_request_a_keyframe(feed: FleetFeed, samples: list[FleetSample]) -> None:
    feed.take(samples[0])
    communicator = SocketClient()
    await communicator.connect()
    await communicator.receive()
    await communicator.say(json.dumps({"type": "keyframe"}))
    assert read_frame(await communicator.receive()).head["kind"] == "keyframe"
    await communicator.disconnect()


async def test_paused_viewer_receives_nothing_until_it_resumes(feed: FleetFeed, samples: list[FleetSample]) -> None:
    communicator = SocketClient()
    await communicator.connect()
    await communicator.receive()
    await communicator.say('{"type":"pause"}')
    assert await communicator.receive_nothing(timeout=0.05)
    feed.take(samples[0])
    assert await communicator.receive_nothing(timeout=0.05)
    await communicator.say('{"type":"resume"}')
    assert read_frame(await communicator.receive()).head["seq"] == 1
    await communicator.disconnect()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "nonsense", '{"type":"delete"}', '{"type":["keyframe"]}', "[" * 5000, '{"type":"pause"}' + " " * 300],
)
async def test_unknown_message_closes_the_socket(feed: FleetFeed, text: str) -> None:
    communicator = SocketClient()
    await communicator.connect()
    await communicator.receive()
    await communicator.say(text)
    assert (await communicator.receive_output())["code"] == BAD_MESSAGE
    await communicator.disconnect()


async def test_bytes_from_a_viewer_close_the_socket(feed: FleetFeed) -> None:
    communicator = SocketClient()
    await communicator.connect()
    await communicator.receive()
    await communicator.say(data=b"\x00")
    assert (await communicator.receive_output())["code"] == BAD_MESSAGE
    await communicator.disconnect()


async def test_stalled_viewer_is_disconnected_and_removed(feed: FleetFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, object]] = []
    stuck = asyncio.Event()

    async def send(message: dict[str, object]) -> None:
        sent.append(message)
        if "bytes" in message:
            await stuck.wait()

    monkeypatch.setattr(FleetConsumer, "stall_s", 0.02)
    inbox: asyncio.Queue[dict[str, object]] = asyncio.Queue()
    inbox.put_nowait({"type": "websocket.connect"})
    scope = {
        "type": "websocket",
        "path": "/ws/fleet",
        "headers": [],
        "user": User(pk=1, username="op", is_superuser=True),
    }
    scope["session"] = OneSession("a-session")
    served = asyncio.create_task(FleetConsumer.as_asgi()(scope, inbox.get, send))
    await until(lambda: any(message["type"] == "websocket.close" for message in sent))
    assert sent[-1]["code"] == STALLED
    assert not feed._viewers
    inbox.put_nowait({"type": "websocket.disconnect", "code": STALLED})
    await served


async def test_disconnected_viewer_is_removed(feed: FleetFeed) -> None:
    communicator = SocketClient()
    await communicator.connect()
    await communicator.receive()
    assert len(feed._viewers) == 1
    await communicator.disconnect()
    assert not feed._viewers


async def test_disconnect_during_a_frame_is_no_error(feed: FleetFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(self: FleetConsumer, **_: object) -> None:
        raise ClientDisconnected

    consumer = FleetConsumer()
    monkeypatch.setattr(FleetConsumer, "send", gone)
    consumer._feed, consumer._viewer = feed, feed.join()
    await asyncio.wait_for(consumer._send_frames(), 20)
