"""A pool that only observes routes nothing, accounts for decisions of others, and compares its own choice with them."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.api import observation_playback
from gateway.api.access_log import SkippedLineError, observation_of
from gateway.api.observation_playback import PLAYED_BYTES, HeldObservation, ObservationPlayback
from gateway.api.observe_request import (
    MAX_OBSERVATIONS,
    AssumedPrompt,
    numbered_lines,
    observed_prompt,
    read_observation,
)
from gateway.base.settings import GatewaySettings
from gateway.contracts.snapshot import ShadowEntry
from gateway.requests.prompt_keys import PromptKeys
from gateway.server.http.json_body import BadBodyError
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.access.test_key_limits import limit
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, OTHER_KEY, ServedGateway, served
from tests.patience import until

OBSERVE = "/api/v1/observe"
POLICY = RoutingPolicy(placement=Stage(name="mooncake"))
QUICK = GatewaySettings(probe_interval_s=0.1, observe_delay_s=0.3)


def observing(engines: list[ScriptedEngine], state_dir: Path, **pool: Any) -> Any:
    entry = ShadowEntry(run_id="run", policy=POLICY, base_version=0, until=time.time() + 60)
    urls = [engine.url for engine in engines]
    return served(urls, state_dir, policy=POLICY, mode="observe", shadow=entry, gateway_settings=QUICK, **pool)


def observation(engine: str = "engine-0", **fields: Any) -> dict[str, Any]:
    known = {"engine": engine, "started_at": time.time(), "ttft_s": 0.05, "total_s": 0.1, "cached_tokens": 16}
    request = {"model": MODEL, "block_hashes": [1, 2, 3], **fields.pop("request", {})}
    return {"request": request, **known, **fields}


def lines(*observations: dict[str, Any]) -> bytes:
    return b"\n".join(json.dumps(observation).encode() for observation in observations)


async def outcomes(gateway: ServedGateway, wanted: int) -> list[str]:
    def known() -> list[str]:
        return [record.outcome for record in list(gateway.app.recent._records.values()) if record.outcome]

    await until(lambda: len(known()) >= wanted)
    return known()


def when_due(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list that collects due observations, because a busy machine can answer later than they are due."""
    due: list[Any] = []
    monkeypatch.setattr(ObservationPlayback, "_begin", lambda *args: due.append(args))
    return due


async def test_an_observing_pool_routes_nothing(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, observing([engine], tmp_path) as gateway:
        for wait in (True, False):
            body = {"model": MODEL, "block_hashes": [1], "wait": wait}
            status, answer, _ = await gateway.post("/api/v1/route", body)
            assert (status, answer["error"]["code"]) == (409, "pool_observes")
        chat = {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}
        status, answer, _ = await gateway.post("/v1/chat/completions", chat)
        assert (status, answer["error"]["code"]) == (409, "pool_observes")


async def test_decisions_of_others_are_accounted_for_and_compared(tmp_path: Path) -> None:
    async with ScriptedEngine() as one, ScriptedEngine() as two, observing([one, two], tmp_path) as gateway:
        # All requests go to one engine, the second time with their prompt cached there.
        first = lines(
            observation(), observation(outcome="failed"), observation(one.url, request={"block_hashes": [7, 8]})
        )
        assert (await gateway.post(OBSERVE, first))[1] == {"accepted": 3, "rejected": 0, "problems": []}
        assert sorted(await outcomes(gateway, 3)) == ["completed", "completed", "failed"]
        await gateway.post(OBSERVE, lines(observation("e0"), observation("e1", outcome="cancelled")))
        await outcomes(gateway, 5)
        (report,) = gateway.pool.shadow.take_reports(time.time())
        tally = report.tally
        assert tally.compared == 5
        assert [tally.engines[name].live_requests for name in ("engine-0", "engine-1")] == [4, 1]
        assert tally.engines["engine-1"].shadow_requests >= 1
        assert tally.gain_s > 0
        assert tally.answered in (4, 5)
        assert 0.04 < tally.measured_s / tally.answered < 0.5
        records = list(gateway.app.recent._records.values())
        assert {record.decision.reason for record in records} == {"observed"}
        assert sorted(item.decision.candidates[0].blocks for item in records) == [0, 0, 0, 3, 3]
        assert abs(records[0].decided_at - time.time()) < 10
        assert len(gateway.pool.router.reservations) == 0
        text = await gateway.metrics()
        assert 'headway_observed_requests_total{pool="pool",result="accepted"} 5.0' in text


async def test_unusable_lines_are_named(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, observing([engine], tmp_path) as gateway:
        bad = [
            observation("of-elsewhere"),
            observation(request={"model": "unknown"}),
            observation(started_at=time.time() + 3600),
            observation(total_s=-1),
            observation(request={"block_hashes": None}),
        ]
        status, answer, _ = await gateway.post(OBSERVE, lines(observation(), *bad) + b"\n{garbage\n")
        assert (status, answer["accepted"], answer["rejected"]) == (200, 1, 6)
        assert [item["line"] for item in answer["problems"]] == [2, 3, 4, 5, 6, 7]
        status, answer, _ = await gateway.post(OBSERVE, lines(*bad))
        assert status == 400
        assert answer["error"]["message"].startswith("No line was accepted. Line 1: No engine of this pool")


async def test_a_routing_pool_accepts_no_observations(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        status, answer, _ = await gateway.post(OBSERVE, lines(observation()))
        assert status == 400
        assert "This pool routes its requests" in answer["error"]["message"]


async def test_observations_pending_when_the_pool_starts_to_route_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, due = ObservationPlayback._begin, when_due(monkeypatch)
    async with ScriptedEngine() as only, observing([only], tmp_path) as gateway:
        await gateway.post(OBSERVE, lines(observation(), observation()))
        await until(lambda: len(due) == 2)
        await begin(*due[0])
        assert len(gateway.app.recent) == 1
        pool = gateway.pool
        pool.apply(
            msgspec.structs.replace(pool.entry, mode="route"), [engine.entry for engine in pool.engines.values()]
        )
        await begin(*due[1])
        assert len(gateway.app.recent) == 1


async def test_each_line_counts_as_one_request_of_the_rate_limit(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, observing([engine], tmp_path) as gateway:
        limit(gateway, rate_per_min=4)
        sent = lines(
            observation(), observation("of-elsewhere"), observation(), observation(), observation(), observation()
        )
        status, answer, headers = await gateway.post(OBSERVE, sent)
        assert (status, answer["accepted"], answer["rejected"], answer["resend_from"]) == (200, 3, 3, 5)
        assert [item["line"] for item in answer["problems"]] == [2, 5]
        assert "4 requests per minute" in answer["problems"][-1]["message"]
        assert 1 <= int(headers["retry-after"]) <= 15
        status, answer, headers = await gateway.post(OBSERVE, lines(observation(), observation()))
        assert (status, answer["error"]["code"]) == (429, "key_rate_limit")
        assert 1 <= int(headers["retry-after"]) <= 15
        assert (await gateway.post(OBSERVE, lines(observation()), key=OTHER_KEY))[0] == 200


@pytest.mark.parametrize(
    "asked",
    [
        {"block_hashes": None, "prompt_tokens": 2000},
        {"block_hashes": None, "token_ids": [7] * 1001},
        {"block_hashes": list(range(64))},
        {"block_hashes": [1], "prompt_tokens": 1001},
        {"slo_class": "unknown"},
    ],
)
async def test_no_block_keys_are_computed_for_an_observation_over_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    async def keys(*_: object) -> Any:
        raise AssertionError("a key was made")

    monkeypatch.setattr(PromptKeys, "keys", keys)
    monkeypatch.setattr(AssumedPrompt, "keys", keys)
    async with ScriptedEngine() as engine, observing([engine], tmp_path, max_prompt_tokens=1000) as gateway:
        status, answer, _ = await gateway.post(OBSERVE, lines(observation(request=asked)))
        assert (status, answer["error"]["code"]) == (400, "bad_observations")


async def test_pending_observations_of_the_longest_prompt_use_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    when_due(monkeypatch)
    longest = {"block_hashes": None, "prompt_tokens": 100_000_000}
    async with ScriptedEngine() as engine, observing([engine], tmp_path, max_prompt_tokens=100_000_000) as gateway:
        body = lines(*[observation(request={**longest, "session_id": f"s{n}"}) for n in range(MAX_OBSERVATIONS)])
        await gateway.post(OBSERVE, lines(observation(request=longest)))
        tracemalloc.start()
        try:
            assert (await gateway.post(OBSERVE, body))[1]["accepted"] == MAX_OBSERVATIONS
            held_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert gateway.app.observations.held("tenant-a") == (MAX_OBSERVATIONS + 1, 0)
        assert held_bytes < 4096 * MAX_OBSERVATIONS


async def test_a_tenant_that_fills_its_share_blocks_no_other_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation_playback, "MAX_HELD", 4)
    when_due(monkeypatch)
    async with ScriptedEngine() as engine, observing([engine], tmp_path) as gateway:
        status, answer, headers = await gateway.post(OBSERVE, lines(*[observation()] * 6))
        assert (status, answer["accepted"], answer["resend_from"]) == (200, 4, 5)
        assert "Too many of your observations" in answer["problems"][0]["message"]
        assert "retry-after" in headers
        status, answer, _ = await gateway.post(OBSERVE, lines(observation()))
        assert (status, answer["error"]["code"]) == (429, "too_many")
        _, answer, _ = await gateway.post(OBSERVE, lines(*[observation()] * 6), key=OTHER_KEY)
        assert answer["accepted"] == 2
        assert 'headway_observed_requests_total{pool="pool",result="too_many"} 3.0' in await gateway.metrics()


async def test_a_tenants_block_keys_have_a_byte_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation_playback, "MAX_KEY_BYTES", 8 * 100)
    when_due(monkeypatch)
    long = observation(request={"block_hashes": list(range(60))})
    async with ScriptedEngine() as engine, observing([engine], tmp_path) as gateway:
        _, answer, _ = await gateway.post(OBSERVE, lines(long, long, long))
        assert (answer["accepted"], answer["resend_from"]) == (2, 3)
        _, answer, _ = await gateway.post(OBSERVE, lines(long, long), key=OTHER_KEY)
        assert answer["accepted"] == 1


async def test_playback_stays_within_the_byte_limit_and_frees_it_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation_playback, "MAX_KEY_BYTES", 100 * PLAYED_BYTES)
    assumed = observation(request={"block_hashes": None, "prompt_tokens": 60 * 16})
    long = observation(total_s=3600, request={"block_hashes": [1]})
    async with ScriptedEngine() as engine, observing([engine], tmp_path) as gateway:
        assert (await gateway.post(OBSERVE, lines(long, assumed, assumed)))[1]["accepted"] == 3
        await until(lambda: gateway.app.observations.held("tenant-a") == (1, PLAYED_BYTES))
        assert await outcomes(gateway, 1) == ["completed"]
        assert 'headway_observed_requests_total{pool="pool",result="too_many"} 1.0' in await gateway.metrics()
        assert (await gateway.post(OBSERVE, lines(assumed)))[1]["accepted"] == 1
        assert await outcomes(gateway, 2) == ["completed"] * 2


async def test_pending_observations_hold_no_prompt_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    due = when_due(monkeypatch)
    asked = {"block_hashes": None, "messages": [{"role": "user", "content": "a canary"}], "tools": [{"b": "a canary"}]}
    async with ScriptedEngine() as engine, observing([engine], tmp_path) as gateway:
        assert (await gateway.post(OBSERVE, lines(observation(request=asked))))[1]["accepted"] == 1
        await until(lambda: len(due) == 1)
        held = due[0][-1]
        assert isinstance(held, HeldObservation)
        assert "canary" not in repr(held)


def test_too_many_or_zero_lines_are_rejected() -> None:
    with pytest.raises(BadBodyError, match="more than 1000 lines"):
        numbered_lines(b"{}\n" * (MAX_OBSERVATIONS + 1))
    with pytest.raises(BadBodyError, match="more than 1000 lines"):
        numbered_lines(b"\n" * MAX_OBSERVATIONS + b"{}")
    with pytest.raises(BadBodyError, match="empty"):
        numbered_lines(b" \n\n")
    assert len(numbered_lines(b"{}\n" * MAX_OBSERVATIONS)) == MAX_OBSERVATIONS
    assert numbered_lines(b"\n{}\n \n[1]") == [(2, b"{}"), (4, b"[1]")]


async def test_a_line_that_is_not_an_object_is_rejected() -> None:
    with pytest.raises(BadBodyError, match="must be a JSON object"):
        await read_observation(b"[1]")


async def without_prompt(tokens: int, session: str | None) -> tuple[int, ...]:
    asked: dict[str, Any] = {"block_hashes": None, "prompt_tokens": tokens, "session_id": session}
    prompt = observed_prompt(await read_observation(lines(observation(request=asked))), 16, "decision-1")
    assert isinstance(prompt, AssumedPrompt)
    return await prompt.keys(7)


async def test_assumed_prompts_of_one_session_share_a_prefix() -> None:
    short, long = await without_prompt(50, "s"), await without_prompt(100, "s")
    assert (len(short), len(long)) == (3, 6)
    assert long[:3] == short
    assert not set(await without_prompt(50, "t")) & set(short)
    assert not set(await without_prompt(50, None)) & set(short)


LINE = {
    "time": "1795203730.500", "request_time": "2.500", "uri": "/v1/chat/completions", "status": "200",
    "upstream": "10.0.0.1:8000, 10.0.0.2:8000", "request_length": "8400", "session": "s-1",
}  # fmt: skip


def test_an_nginx_log_line_becomes_an_observation() -> None:
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
