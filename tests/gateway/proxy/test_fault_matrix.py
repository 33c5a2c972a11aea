"""Each fault at each endpoint, streaming or not, of one engine or all: the client's response, and the blamed engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.pools.engines.breaker import CLOSED, HTTP_5XX, OPEN
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.proxy.faulty_engine import GENERATING, REASON, WHOLE_ONLY, FaultyEngine, body_for
from tests.gateway.served_gateway import KEY, MODEL, ServedGateway, served

ROUND_ROBIN = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected results of a fault: for the client if all engines have it, and for the faulty engine."""

    status: int
    text: str
    state: str
    error: str
    retried: bool = True
    """Whether another engine is asked before the client gets an error."""
    blamed: str = ""
    """Count of its breaker for one engine's fault: a kind of failure, "rejections", or "open"."""


FAULTS = {
    "400": Expected(400, REASON, "client_error", "http_400", retried=False),
    "422": Expected(422, REASON, "client_error", "http_422", retried=False),
    "501": Expected(501, REASON, "client_error", "http_501", retried=False),
    "error_in_200_400": Expected(400, REASON, "client_error", "http_400", retried=False),
    "404": Expected(404, REASON, "client_error", "http_404", blamed="rejections"),
    "429": Expected(429, REASON, "client_error", "http_429", blamed="open"),
    "503": Expected(503, REASON, "client_error", "http_503", blamed="open"),
    "error_in_200_503": Expected(503, REASON, "client_error", "http_503", blamed="open"),
    "401": Expected(502, "HEADWAY_ENGINE_API_KEY", "failed", "engine_rejects_key", blamed="rejections"),
    "403": Expected(502, "HEADWAY_ENGINE_API_KEY", "failed", "engine_rejects_key", blamed="rejections"),
    "500": Expected(500, REASON, "failed", "http_500", blamed=HTTP_5XX),
    "error_in_200_500": Expected(500, REASON, "failed", "http_500", blamed=HTTP_5XX),
    "html": Expected(502, "could not be read", "failed", "engine_error", blamed=HTTP_5XX),
    "no_json": Expected(502, "could not be read", "failed", "engine_error", blamed=HTTP_5XX),
    "dies": Expected(503, "No engine accepted", "failed", "engine_unreachable"),
    "dies_after_comments": Expected(503, "No engine accepted", "failed", "engine_unreachable"),
    "ends_empty": Expected(503, "No engine accepted", "failed", "engine_unreachable"),
    "dies_after_content": Expected(200, "broken_stream", "failed", "broken_stream", retried=False, blamed=HTTP_5XX),
    "error_after_content": Expected(200, REASON, "failed", "broken_stream", retried=False, blamed=HTTP_5XX),
}
STREAMS_ONLY = ("dies_after_comments", "ends_empty", "dies_after_content", "error_after_content")
WAYS = [(path, True) for path in GENERATING] + [(path, False) for path in (*GENERATING, *WHOLE_ONLY)]
IDS = [f"{path}-{'stream' if stream else 'whole'}" for path, stream in WAYS]


async def check_all_faults(check: Callable[[str, Expected], Awaitable[None]], *, stream: bool) -> None:
    """Run the check for all faults concurrently, since each mostly waits for its servers to start and stop."""
    left_out = ("no_json",) if stream else STREAMS_ONLY
    checked = [fault for fault in FAULTS if fault not in left_out]
    results = await asyncio.gather(*(check(fault, FAULTS[fault]) for fault in checked), return_exceptions=True)
    failed = {fault: result for fault, result in zip(checked, results, strict=True) if result is not None}
    for fault, error in failed.items():
        error.add_note(f"with the fault {fault!r}")
    if failed:
        raise BaseExceptionGroup("some faults", list(failed.values()))


@asynccontextmanager
async def two_engines(directory: Path) -> AsyncIterator[tuple[FaultyEngine, FaultyEngine, ServedGateway]]:
    """Serve a gateway over two engines."""
    async with (
        FaultyEngine() as one,
        FaultyEngine() as two,
        served([one.url, two.url], directory, policy=ROUND_ROBIN) as gateway,
    ):
        yield one, two, gateway


async def ask(gateway: ServedGateway, engines: list[FaultyEngine], path: str, *, stream: bool) -> tuple[int, str, dict]:
    """Return status and text of a response, and the outcome of its request."""
    for engine in engines:
        engine.waits.clear()
    sent = {"authorization": f"Bearer {KEY}"}
    async with gateway.client.post(
        gateway.url + path, json=body_for(path, MODEL, stream=stream), headers=sent
    ) as answer:
        text = b""
        async for chunk in answer.content.iter_any():
            text += chunk
            for engine in engines:
                engine.waits.set()
    _, explained = await gateway.get(f"/api/v1/explain/{answer.headers['x-headway-decision']}")
    return answer.status, text.decode(), explained["outcome"]


def blamed_for(gateway: ServedGateway, number: int) -> str:
    """Return the failure that an engine's breaker recorded."""
    breaker = gateway.pool.engines[f"engine-{number}"].breaker
    if breaker.state == OPEN:
        return "open"
    assert breaker.state == CLOSED
    return "rejections" if breaker.rejections else HTTP_5XX if breaker._counts[HTTP_5XX] else ""


@pytest.mark.parametrize(("path", "stream"), WAYS, ids=IDS)
async def test_a_fault_of_one_engine_is_handled_as_the_table_says(tmp_path: Path, path: str, stream: bool) -> None:
    async def check(fault: str, expected: Expected) -> None:
        async with two_engines(tmp_path / fault) as (bad, good, gateway):
            bad.fault = fault
            for _ in range(2):
                # Round robin reaches it with the first or the second request.
                status, text, outcome = await ask(gateway, [bad], path, stream=stream)
                if bad.calls:
                    break
            assert (bad.calls, good.calls) == (1, 1) if expected.retried or good.calls else (1, 0)
            if expected.retried:
                assert (status, outcome["state"], outcome["error"]) == (200, "completed", "")
                assert "lo" in text
                assert REASON not in text
            else:
                assert (status, outcome["state"], outcome["error"]) == (expected.status, expected.state, expected.error)
                assert expected.text in text
            if expected.blamed or not expected.retried:
                assert blamed_for(gateway, 0) == expected.blamed
            assert blamed_for(gateway, 1) == ""
            counted = f'headway_requests_total{{outcome="{outcome["state"]}",pool="pool"}}'
            assert counted in await gateway.metrics()
            assert len(gateway.pool.router.reservations) == 0

    await check_all_faults(check, stream=stream)


@pytest.mark.parametrize(("path", "stream"), WAYS, ids=IDS)
async def test_a_fault_of_all_engines_is_handled_as_the_table_says(tmp_path: Path, path: str, stream: bool) -> None:
    async def check(fault: str, expected: Expected) -> None:
        async with two_engines(tmp_path / fault) as (one, two, gateway):
            one.fault = two.fault = fault
            status, text, outcome = await ask(gateway, [one, two], path, stream=stream)
            assert (status, outcome["state"], outcome["error"]) == (expected.status, expected.state, expected.error)
            assert expected.text in text
            assert text.count(REASON) == (expected.text == REASON)
            if not expected.retried:
                assert one.calls + two.calls == 1
            elif expected.text in (REASON, "HEADWAY_ENGINE_API_KEY"):
                assert (one.calls, two.calls) == (1, 1)
                for number in (0, 1):
                    assert blamed_for(gateway, number) == ""
                    assert gateway.pool.progress.engine(f"engine-{number}").failures_in_row == 0
            assert one.calls + two.calls <= 3
            assert len(gateway.pool.router.reservations) == 0

    await check_all_faults(check, stream=stream)


async def test_a_prompt_that_fails_on_every_engine_ejects_none(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as (one, two, gateway):
        for _ in range(12):
            one.fault = two.fault = "500"
            assert (await ask(gateway, [one, two], GENERATING[0], stream=False))[0] == 500
        assert one.calls + two.calls == 24
        one.fault = two.fault = ""
        assert (await ask(gateway, [one, two], GENERATING[0], stream=False))[0] == 200
        assert one.calls + two.calls == 25
