"""A pool that only observes: nothing is routed, what others did is accounted for, and our choice is compared."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.api.access_log import SkippedLineError, observation_of
from gateway.api.observe_api import ObserveApi
from gateway.api.observe_request import MAX_OBSERVATIONS, LineProblem, Observation, observed_prompt, read_observations
from gateway.base.settings import GatewaySettings
from gateway.contracts.snapshot import ShadowEntry
from gateway.formats.prompt import HashedPrompt
from gateway.http.json_body import BadBodyError
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served
from tests.patience import until

OBSERVE = "/api/v1/observe"
POLICY = RoutingPolicy(placement=Stage(name="min_ttft"))
QUICK = GatewaySettings(probe_interval_s=0.1, observe_delay_s=0.3)


def observing(engines: list[ScriptedEngine], state_dir: Path) -> Any:
    entry = ShadowEntry(run_id="run", policy=POLICY, base_version=0, until=time.time() + 60)
    urls = [each.url for each in engines]
    return served(urls, state_dir, policy=POLICY, mode="observe", shadow=entry, gateway_settings=QUICK)


def told(engine: str = "engine-0", **fields: Any) -> dict[str, Any]:
    known = {"engine": engine, "started_at": time.time(), "ttft_s": 0.05, "total_s": 0.1, "cached_tokens": 16}
    request = {"model": MODEL, "block_hashes": [1, 2, 3], **fields.pop("request", {})}
    return {"request": request, **known, **fields}


def lines(*observations: dict[str, Any]) -> bytes:
    return b"\n".join(json.dumps(each).encode() for each in observations)


async def outcomes(gateway: ServedGateway, wanted: int) -> list[str]:
    def known() -> list[str]:
        return [record.outcome for record in list(gateway.app.recent._records.values()) if record.outcome]

    await until(lambda: len(known()) >= wanted)
    return known()


async def test_nothing_is_routed(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, observing([engine], tmp_path) as gateway:
        for wait in (True, False):
            body = {"model": MODEL, "block_hashes": [1], "wait": wait}
            status, answer, _ = await gateway.post("/api/v1/route", body)
            assert (status, answer["error"]["code"]) == (409, "pool_observes")
        chat = {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}
        status, answer, _ = await gateway.post("/v1/chat/completions", chat)
        assert (status, answer["error"]["code"]) == (409, "pool_observes")


async def test_what_others_did_is_accounted_for_and_compared(tmp_path: Path) -> None:
    async with ScriptedEngine() as one, ScriptedEngine() as two, observing([one, two], tmp_path) as gateway:
        # All goes to one engine, the second time with its prompt cached there.
        first = lines(told(), told(outcome="failed"), told(one.url, request={"block_hashes": [7, 8]}))
        assert (await gateway.post(OBSERVE, first))[1] == {"accepted": 3, "refused": 0, "problems": []}
        assert sorted(await outcomes(gateway, 3)) == ["completed", "completed", "failed"]
        await gateway.post(OBSERVE, lines(told("e0"), told("e1", outcome="cancelled")))
        await outcomes(gateway, 5)
        (report,) = gateway.pool.shadow.take_reports(time.time())
        tally = report.tally
        assert tally.compared == 5
        assert [tally.engines[each].live_requests for each in ("engine-0", "engine-1")] == [4, 1]
        assert tally.engines["engine-1"].shadow_requests >= 1
        assert tally.gain_s > 0
        assert tally.answered in (4, 5)
        assert 0.04 < tally.measured_s / tally.answered < 0.5
        records = list(gateway.app.recent._records.values())
        assert {record.decision.reason for record in records} == {"observed"}
        assert sorted(each.decision.candidates[0].blocks for each in records) == [0, 0, 0, 3, 3]
        assert abs(records[0].decided_at - time.time()) < 10
        assert len(gateway.pool.router.reservations) == 0
        text = await gateway.metrics()
        assert 'switchyard_observed_requests_total{pool="pool",result="accepted"} 5.0' in text


async def test_lines_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, observing([engine], tmp_path) as gateway:
        bad = [
            told("of-elsewhere"),
            told(request={"model": "unknown"}),
            told(started_at=time.time() + 3600),
            told(total_s=-1),
            told(request={"block_hashes": None}),
        ]
        status, answer, _ = await gateway.post(OBSERVE, lines(told(), *bad) + b"\n{garbage\n")
        assert (status, answer["accepted"], answer["refused"]) == (200, 1, 6)
        assert [each["line"] for each in answer["problems"]] == [2, 3, 4, 5, 6, 7]
        status, answer, _ = await gateway.post(OBSERVE, lines(*bad))
        assert status == 400
        assert answer["error"]["message"].startswith("No line was accepted. Line 1: No engine of this pool")


async def test_a_pool_that_routes_takes_no_observations(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        status, answer, _ = await gateway.post(OBSERVE, lines(told()))
        assert status == 400
        assert "This pool routes its requests" in answer["error"]["message"]


async def test_one_that_waits_when_the_pool_begins_to_route_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, due = ObserveApi._begin, []
    # Its time comes when the test says so: a busy machine may take longer to answer the call than it waits.
    monkeypatch.setattr(ObserveApi, "_begin", lambda *args: due.append(args))
    async with ScriptedEngine() as only, observing([only], tmp_path) as gateway:
        await gateway.post(OBSERVE, lines(told(), told()))
        await until(lambda: len(due) == 2)
        begin(*due[0])
        assert len(gateway.app.recent) == 1
        pool = gateway.pool
        pool.apply(
            msgspec.structs.replace(pool.entry, mode="route"), [engine.entry for engine in pool.engines.values()]
        )
        begin(*due[1])
        assert len(gateway.app.recent) == 1


async def test_too_many_or_no_lines_are_rejected() -> None:
    with pytest.raises(BadBodyError, match="more than 1000 lines"):
        await read_observations(b"{}\n" * (MAX_OBSERVATIONS + 1))
    with pytest.raises(BadBodyError, match="empty"):
        await read_observations(b" \n\n")
    (problem,) = await read_observations(b"[1]")
    assert isinstance(problem, LineProblem)


async def without_prompt(tokens: int, session: str | None) -> tuple[int, ...]:
    asked: dict[str, Any] = {"block_hashes": None, "prompt_tokens": tokens, "session_id": session}
    (read,) = await read_observations(lines(told(request=asked)))
    assert isinstance(read, Observation)
    prompt = observed_prompt(read, 16, "decision-1")
    assert isinstance(prompt, HashedPrompt)
    return tuple(prompt.block_hashes)


async def test_requests_of_one_session_share_what_went_before() -> None:
    short, long = await without_prompt(50, "s"), await without_prompt(100, "s")
    assert (len(short), len(long)) == (3, 6)
    assert long[:3] == short
    assert not set(await without_prompt(50, "t")) & set(short)
    assert not set(await without_prompt(50, None)) & set(short)


LINE = {
    "time": "1795203730.500", "request_time": "2.500", "uri": "/v1/chat/completions", "status": "200",
    "upstream": "10.0.0.1:8000, 10.0.0.2:8000", "request_length": "8400", "session": "s-1",
}  # fmt: skip


def test_a_line_of_nginx_becomes_an_observation() -> None:
    assert observation_of(json.dumps(LINE).encode(), "m") == {
        "request": {"model": "m", "prompt_tokens": 2000, "session_id": "s-1"},
        "engine": "10.0.0.2:8000",
        "started_at": 1795203728.0,
        "total_s": 2.5,
        "outcome": "completed",
    }
    more = {**LINE, "ttft": "0.25", "cached_tokens": "512", "output_tokens": 30, "prompt_tokens": "900", "status": 499}
    observed = observation_of(json.dumps(more).encode(), "m")
    assert observed["request"]["prompt_tokens"] == 900
    assert (observed["ttft_s"], observed["cached_tokens"], observed["output_tokens"]) == (0.25, 512, 30)
    assert observed["outcome"] == "cancelled"
    assert observation_of(json.dumps({**LINE, "status": "502"}).encode(), "m")["outcome"] == "failed"


@pytest.mark.parametrize(
    ("change", "why"),
    [({"uri": "/health"}, "another path"), ({"upstream": "-"}, "no upstream"), ({"time": "soon"}, "lacks time")],
)
def test_other_lines_are_skipped(change: dict[str, str], why: str) -> None:
    with pytest.raises(SkippedLineError, match=why):
        observation_of(json.dumps({**LINE, **change}).encode(), "m")
    with pytest.raises(SkippedLineError, match="not JSON"):
        observation_of(b"127.0.0.1 - - GET /", "m")
