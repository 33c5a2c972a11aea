"""A gateway's answers to the console about recent decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.bus.bus import InProcessBus
from gateway.contracts.recent_question import ANSWER, ANSWERED, ASKED, QUESTION, RecentAnswer, RecentQuestion
from gateway.reports.recent_answers import RecentAnswers
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, served

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
