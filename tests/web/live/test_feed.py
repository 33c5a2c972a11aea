"""The feed encodes each frame once for all viewers, and keeps one frame per viewer in a mailbox."""

from __future__ import annotations

import asyncio
import math
import threading

import msgspec
import pytest
from msgspec.structs import replace

from controlplane.history.rollups import StoredHour
from controlplane.platform.format import percent
from controlplane.platform.live_fleet.samples import FleetSamples
from gateway.bus.bus import InProcessBus
from gateway.contracts.fleet_sample import TOPIC, FleetSample
from tests.web.fake_fleet import FakeFleet
from tests.web.live.frame_reader import read_frame
from web.live.feed import FleetFeed
from web.live.viewer import Viewer


def encoded(sample: FleetSample) -> bytes:
    return msgspec.msgpack.encode(sample)


async def settle() -> None:
    """Run the callbacks that call_soon_threadsafe scheduled."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_viewers_share_one_encoded_frame(samples: list[FleetSample]) -> None:
    feed = FleetFeed()
    feed.take(samples[0])
    viewers = [feed.join() for _ in range(3)]
    for viewer in viewers:
        assert await viewer.next_frame() is None
        seq, frame = feed.keyframe()
        viewer.keyframe_sent(seq)
        assert frame is feed.keyframe()[1]
    feed.take(samples[1])
    await settle()
    frames = [await viewer.next_frame() for viewer in viewers]
    assert frames[0] is frames[1] is frames[2]
    assert read_frame(frames[0], 4, 2).head["seq"] == 2


async def test_slow_viewer_gets_only_the_newest_frame(samples: list[FleetSample]) -> None:
    feed = FleetFeed()
    feed.take(samples[0])
    viewer = feed.join()
    await viewer.next_frame()
    viewer.keyframe_sent(feed.keyframe()[0])
    for sample in samples[1:20]:
        feed.take(sample)
    await settle()
    assert read_frame(await viewer.next_frame(), 4, 2).head["seq"] == 20
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(viewer.next_frame(), 0.02)


async def test_removed_engine_stays_visible_until_its_columns_leave_the_window() -> None:
    fleet, feed = FakeFleet(5, 2), FleetFeed()
    viewer = feed.join(frozenset({"pool-1"}))
    others = feed.join(frozenset({"pool-0"}))

    def take(t: float, names: str) -> None:
        sample = fleet.sample_at(t, 1_800_000_000.0)
        feed.take(replace(sample, engines=tuple(engine for engine in sample.engines if engine.name in names)))

    for t in range(0, 20, 2):
        take(t, "e-01 e-02 e-03 e-04 e-05")
    for item in (viewer, others):
        assert await item.next_frame() is None
        item.keyframe_sent(feed.keyframe(item.scope)[0])
    take(20, "e-01 e-02 e-03 e-04")
    await settle()
    frame = read_frame(await viewer.next_frame() or b"")
    assert [item["name"] for item in frame.head["engines"]] == ["e-04", "e-05"]
    removed = frame.head["engines"][1]
    assert (removed["state"], removed["removed"], removed["since"]) == ("removed", True, 1_800_000_020.0)
    assert frame.engines["tokens"][1][-2] > 0
    assert math.isnan(frame.engines["tokens"][1][-1])
    assert math.isnan(frame.now[1][0])
    left = frame.head["markers"][-1]
    assert (left["label"], left["engine_id"]) == ("e-05 removed", "engine-e-05")
    assert read_frame(await others.next_frame() or b"", 3, 1).head["kind"] == "column"
    take(22, "e-01 e-02 e-03 e-04")
    await settle()
    assert read_frame(await viewer.next_frame() or b"", 2, 1).head["kind"] == "column"
    take(22 + 300, "e-01 e-02 e-03 e-04")
    await settle()
    assert [item["name"] for item in read_frame(await viewer.next_frame() or b"").head["engines"]] == ["e-04"]


async def test_frames_older_than_the_keyframe_are_dropped() -> None:
    viewer = Viewer()
    assert await viewer.next_frame() is None
    viewer.offer(4, b"older")
    viewer.keyframe_sent(4)
    viewer.offer(5, b"newer")
    await settle()
    assert await viewer.next_frame() == b"newer"


async def test_hidden_tab_gets_nothing_and_then_a_keyframe() -> None:
    viewer = Viewer()
    await viewer.next_frame()
    viewer.pause()
    viewer.offer(1, b"unseen")
    await settle()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(viewer.next_frame(), 0.02)
    viewer.resume()
    assert await viewer.next_frame() is None


async def test_changed_topology_is_sent_as_a_keyframe(samples: list[FleetSample]) -> None:
    feed = FleetFeed()
    feed.take(samples[0])
    viewer = feed.join()
    await viewer.next_frame()
    viewer.keyframe_sent(feed.keyframe()[0])
    feed.take(msgspec.structs.replace(samples[1], engines=samples[1].engines[:2]))
    await settle()
    assert read_frame(await viewer.next_frame()).head["kind"] == "keyframe"


async def test_disconnected_viewer_is_removed(samples: list[FleetSample]) -> None:
    feed = FleetFeed()
    viewer = feed.join()
    await viewer.next_frame()
    feed.leave(viewer)
    feed.leave(viewer)
    feed.take(samples[0])
    await settle()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(viewer.next_frame(), 0.02)


@pytest.mark.parametrize("shares", [(0.5, 0.7, 0.6), (0.8, None, 0.5), (0.31, 0.29)])
def test_the_sentence_has_the_figures_that_the_frame_draws(shares: tuple[float | None, ...]) -> None:
    feed, at = FleetFeed(), 1_800_000_000.0
    for number, share in enumerate(shares):
        sample = FakeFleet(4, 1, events=False).sample_at(number * 0.5, at)
        pool = replace(sample.pools[0], on_time_share=share, requests_per_s=10.0 + number, late=7 + number)
        feed.take(replace(sample, pools=(pool,)))
    frame = read_frame(feed.keyframe()[1], 4, 1)
    drawn = {name: frame.pools[name][0][-1] for name in ("on_time", "late")}
    verdict = frame.head["verdict"]
    assert verdict["lead"] == "Requests are late."
    assert verdict["text"].startswith(f"{percent(float(drawn['on_time']))} of ")
    assert f"; {drawn['late']:.0f} requests late, " in verdict["text"]


def test_late_sample_changes_nothing(samples: list[FleetSample]) -> None:
    feed = FleetFeed()
    feed.take(samples[-1])
    seq = feed.keyframe()[0]
    feed.take(samples[0])
    assert feed.keyframe()[0] == seq
    assert feed.latest == samples[-1]


def test_feed_follows_the_bus_once_until_it_is_stopped(samples: list[FleetSample]) -> None:
    bus, feed = InProcessBus(), FleetFeed()
    bus.publish(TOPIC, encoded(samples[0]))
    followed = FleetSamples(bus)
    feed.start(followed, bus)
    feed.start(followed, bus)
    assert feed.latest == samples[0]
    bus.publish(TOPIC, encoded(samples[1]))
    assert feed.keyframe()[0] == 2
    feed.stop()
    bus.publish(TOPIC, encoded(samples[2]))
    assert feed.latest == samples[1]


async def test_samples_may_arrive_from_another_thread(samples: list[FleetSample]) -> None:
    feed = FleetFeed()
    feed.take(samples[0])
    viewer = feed.join()
    await viewer.next_frame()
    viewer.keyframe_sent(feed.keyframe()[0])
    publisher = threading.Thread(target=feed.take, args=(samples[1],))
    publisher.start()
    frame = await asyncio.wait_for(viewer.next_frame(), 5)
    publisher.join()
    assert read_frame(frame, 4, 2).head["seq"] == 2


async def test_stored_hour_fills_the_strip_and_viewers_get_a_keyframe(samples: list[FleetSample]) -> None:
    feed = FleetFeed()
    feed.take(samples[0])
    viewer = feed.join()
    await viewer.next_frame()
    viewer.keyframe_sent(feed.keyframe()[0])
    newest = int(samples[0].at // 10)
    hour = msgspec.msgpack.encode(StoredHour({"pool-0": {newest - 5: 7.5, newest - 500: 1.0}}))
    feed.take_hour(hour)
    await settle()
    frame = read_frame(await viewer.next_frame())
    assert (frame.head["kind"], frame.hour[0][-6]) == ("keyframe", 7.5)
    feed.take_hour(hour)
    feed.take_hour(b"\xc1")
    await settle()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(viewer.next_frame(), 0.02)


def test_stored_hour_waits_for_the_first_sample(samples: list[FleetSample]) -> None:
    feed = FleetFeed()
    newest = int(samples[0].at // 10)
    feed.take_hour(msgspec.msgpack.encode(StoredHour({"pool-1": {newest - 1: 2.5}})))
    feed.take(samples[0])
    assert read_frame(feed.keyframe()[1]).hour[1][-2] == 2.5


async def test_flood_of_requests_gets_one_keyframe_per_second(samples: list[FleetSample]) -> None:
    feed, now, sent = FleetFeed(), [0.0], 0
    for sample in samples[:8]:
        feed.take(sample)

    async def pass_by(seconds: float) -> None:
        now[0] += seconds

    viewer, keyframe = Viewer(clock=lambda: now[0], sleep=pass_by), len(feed.keyframe()[1])
    while now[0] < 5.0:
        for _ in range(600):
            viewer.ask_keyframe()
            viewer.pause()
            viewer.resume()
        assert await viewer.next_frame() is None
        sent += keyframe
    assert sent == 6 * keyframe, "3,600 requests in 5 s, and the first at once"


async def test_viewer_paused_before_its_keyframe_gets_it_on_resume() -> None:
    now, viewer = [0.0], None

    async def pause(seconds: float) -> None:
        now[0] += seconds
        assert viewer is not None
        viewer.pause()

    viewer = Viewer(clock=lambda: now[0], sleep=pause)
    assert await viewer.next_frame() is None
    viewer.ask_keyframe()
    waiting = asyncio.create_task(viewer.next_frame())
    await settle()
    assert not waiting.done()
    viewer.resume()
    assert await waiting is None
