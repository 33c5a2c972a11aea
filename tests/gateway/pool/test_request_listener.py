"""Listeners receive the events they subscribe to, in order; each request's end is reported once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typing_extensions import override

from gateway.pool.request_listener import RequestListener, RequestListeners, WhenReported
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, served


class _Ends(RequestListener):
    def __init__(self, name: str, received: list[Any]) -> None:
        self._name, self._received = name, received

    @override
    def ended(self, record: Any, now: float) -> None:
        self._received.append((self._name, record))


def test_listeners_of_an_event_receive_it_in_order_and_others_are_not_called() -> None:
    received: list[Any] = []
    listeners = RequestListeners([_Ends("a", received), RequestListener(), _Ends("b", received)])
    assert [len(item) for item in (listeners.dispatched, listeners.first_token, listeners.ended)] == [0, 0, 2]
    for notify in listeners.ended:
        notify("record", 1.0)
    assert received == [("a", "record"), ("b", "record")]


async def test_an_end_reported_twice_is_received_once(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        ends: list[str] = []
        lifecycle = gateway.app.proxy._lifecycle
        lifecycle._listeners.ended = (*lifecycle._listeners.ended, WhenReported(ends.append).ended)
        _, answer, _ = await gateway.post("/api/v1/route", {"model": MODEL, "block_hashes": [1, 2]})
        name = answer["decision_id"]
        for verb in ("complete", "complete", "fail"):
            await gateway.post(f"/api/v1/requests/{name}/{verb}")
        assert ends == [name]
        record = lifecycle.recent.get(name)
        assert record is not None and record.outcome == "completed"
