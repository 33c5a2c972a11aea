"""The lane is found behind wrappers, and only where there is one."""

from __future__ import annotations

from types import SimpleNamespace

from gateway.edge import Edge
from gateway.fast_lane import LaneAnswer, lane_of
from gateway.request_head import RequestHead

HEADERS = [(b"host", b"localhost")]


async def _app(*_: object) -> None:
    raise AssertionError("the lane does not call the app")


def _answer(head: RequestHead, body: bytes) -> LaneAnswer:
    return LaneAnswer(200, b"", head.request_id.encode() + body)


def test_it_is_found_behind_a_wrapper() -> None:
    edge = Edge(_app, fast_lane=_answer)
    assert lane_of(SimpleNamespace(app=SimpleNamespace(app=edge))) == edge.answer_at_once


def test_other_apps_have_none() -> None:
    assert lane_of(_app) is None
    assert lane_of(SimpleNamespace(app=None)) is None


def test_the_edge_checks_what_takes_the_lane() -> None:
    edge = Edge(_app, fast_lane=_answer)
    answer = edge.answer_at_once(HEADERS, b"!")
    assert answer is not None
    assert len(answer.body) == 37
    assert edge.answer_at_once([(b"host", b"evil.example")], b"!") is None
    assert edge.answer_at_once([*HEADERS, (b"content-encoding", b"gzip")], b"!") is None
    assert edge.answer_at_once([*HEADERS, (b"x-request-id", b"mine")], b"!") is None


def test_an_edge_without_a_lane_declines() -> None:
    assert Edge(_app).answer_at_once(HEADERS, b"!") is None
