from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator

import pytest

from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.simulated_engine import PromptSequence
from simulator.engine_server.engine_runtime import EngineRuntime
from simulator.engine_server.event_publisher import EventPublisher
from simulator.engine_server.settings import EngineSettings
from tests.patience import PATIENCE_S


@pytest.fixture
def settings() -> EngineSettings:
    profile = EngineProfile(block_tokens=16, num_blocks=32, recompute_last_block=True)
    return EngineSettings(time_scale=50.0, profile=profile)


@pytest.fixture
def publisher(settings: EngineSettings) -> Iterator[EventPublisher]:
    publisher = EventPublisher(settings)
    yield publisher
    publisher.close()


@pytest.fixture
def runtime(settings: EngineSettings, publisher: EventPublisher) -> Iterator[EngineRuntime]:
    runtime = EngineRuntime(settings, publisher)
    yield runtime
    runtime.close()


def _submit(runtime: EngineRuntime, name: str, output: int = 3):
    return runtime.submit(PromptSequence(name, (1, 2), 40, output), array("I", [7] * 40), "length")


async def test_requests_run_to_their_end_and_the_clock_then_stops(runtime: EngineRuntime) -> None:
    streams = [_submit(runtime, name) for name in "abc"]
    async with asyncio.timeout(PATIENCE_S):
        for stream in streams:
            while await stream.burst() is not None:
                pass
    assert [stream.generated for stream in streams] == [3, 3, 3]
    assert [stream.cached_tokens for stream in streams] == [0, 32, 32]
    assert runtime.load == 0
    assert runtime.model.next_event_time() is None


async def test_an_abort_ends_the_stream_and_can_be_repeated(runtime: EngineRuntime) -> None:
    stream = _submit(runtime, "a", output=10_000)
    runtime.abort("a")
    runtime.abort("a")
    assert await stream.burst() is None
    assert (stream.broken, runtime.load, runtime.model.running) == (True, 0, 0)


async def test_a_waiting_request_continues_after_an_abort(runtime: EngineRuntime) -> None:
    _submit(runtime, "a", output=10_000)
    second = _submit(runtime, "b")
    runtime.abort("a")
    async with asyncio.timeout(PATIENCE_S):
        while await second.burst() is not None:
            pass
    assert second.finished


async def test_closing_ends_every_stream(runtime: EngineRuntime) -> None:
    streams = [_submit(runtime, name, output=10_000) for name in "ab"]
    runtime.close()
    assert [await stream.burst() for stream in streams] == [None, None]
    assert runtime.load == 0


async def test_metrics_show_scaled_time_as_real_time(runtime: EngineRuntime) -> None:
    stream = _submit(runtime, "a", output=1)
    async with asyncio.timeout(PATIENCE_S):
        while await stream.burst() is not None:
            pass
    profile = runtime.settings.profile
    expected = profile.prefill_s(40, 0) / 50.0
    line = next(
        line
        for line in runtime.metrics.render().decode().splitlines()
        if line.startswith("vllm:time_to_first_token_seconds_sum")
    )
    assert float(line.split()[-1]) == pytest.approx(expected)
