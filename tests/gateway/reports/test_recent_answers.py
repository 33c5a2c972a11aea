"""A gateway's answers to the console about recent decisions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from gateway.bus.bus import InProcessBus
from gateway.contracts.recent_question import ANSWER, ANSWERED, ASKED, QUESTION, RecentAnswer, RecentQuestion
from gateway.reports.recent_answers import RecentAnswers
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, served
from tests.patience import until

BODY = {"model": MODEL, "token_ids": list(range(160)), "wait": False, "session_id": "of one person"}


def ask(bus: InProcessBus, **about: Any) -> list[RecentAnswer]:
    answers: list[RecentAnswer] = []
    unsubscribe = bus.subscribe(f"{ANSWERED}console", lambda _, value: answers.append(ANSWER.decode(value)))
    bus.notify(ASKED, QUESTION.encode(RecentQuestion("1", "console", **about)))
    unsubscribe()
    return answers


async def test_running_and_ended_decisions_are_returned_by_id_and_engine_without_sessions(
    tmp_path: Path,
) -> None:
    bus = InProcessBus()
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, bus=bus) as gateway:
        RecentAnswers(bus, gateway.app.recent)
        older, newer = [(await gateway.post("/api/v1/route", BODY))[1]["decision_id"] for _ in range(2)]
        await gateway.post(f"/api/v1/requests/{older}/complete", {"output_tokens": 7})
        (of_engine,) = ask(bus, engine_id="engine-0")
        reported = [
            (decision.decision.decision_id, decision.outcome, decision.output_tokens)
            for decision in of_engine.decisions
        ]
        assert reported == [(newer, "running", None), (older, "completed", 7)]
        (by_id,) = ask(bus, decision_id=older)
        assert by_id.decisions == of_engine.decisions[1:]
        assert not any(decision.session for decision in of_engine.decisions)


async def test_an_unknown_id_gets_an_empty_answer_and_garbage_gets_none(tmp_path: Path) -> None:
    bus = InProcessBus()
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, bus=bus) as gateway:
        RecentAnswers(bus, gateway.app.recent)
        assert ask(bus, decision_id="none") == ask(bus, engine_id="none") == [RecentAnswer("1")]
        received: list[bytes] = []
        bus.subscribe(ANSWERED, lambda _, value: received.append(value))
        bus.notify(ASKED, b"garbage")
        assert received == []


async def test_running_requests_are_listed_with_those_that_wait_at_the_gateway(tmp_path: Path) -> None:
    bus = InProcessBus()
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, bus=bus) as gateway:
        RecentAnswers(bus, gateway.app.recent, gateway.gateway.pools.values)
        big = {**BODY, "token_ids": list(range(60_000)), "wait": True}
        ended = (await gateway.post("/api/v1/route", BODY))[1]["decision_id"]
        await gateway.post(f"/api/v1/requests/{ended}/complete", {"output_tokens": 7})
        dispatched = (await gateway.post("/api/v1/route", big))[1]["decision_id"]
        waiting = asyncio.create_task(gateway.post("/api/v1/route", {**big, "token_ids": list(range(9, 60_009))}))
        await until(lambda: gateway.pool.driver.held)
        (answer,) = ask(bus, running=True)
        first, second = answer.running
        assert (first.decision_id, first.engine_id, first.late) == (dispatched, "engine-0", False)
        assert (second.engine_id, second.prompt_tokens, second.tenant_id, second.key_id) == (
            "",
            60_000,
            "tenant-a",
            "ka",
        )
        assert msgspec.structs.replace(second, age_s=second.ttft_slo_s + 0.1).late
        assert [item.running for item in ask(bus, running=True, pool_ids=("other",))] == [()]
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await until(lambda: not gateway.pool.driver.held)
