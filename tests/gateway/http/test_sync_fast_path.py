"""The lane is found behind wrappers, and only where there is one."""

from __future__ import annotations

from types import SimpleNamespace

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.http.edge import Edge
from gateway.http.request_head import RequestHead, new_id
from gateway.http.sync_fast_path import PATH, KnownHead, LaneAnswer, lane_of

HEADERS = [(b"host", b"localhost")]
ADMISSION = KnownHead(ApiKeyEntry(key_id="k", sha256="", tenant_id="t"), None)


async def _app(*_: object) -> None:
    raise AssertionError("the lane does not call the app")


class _Inner:
    new_id = staticmethod(new_id)

    def admit(self, target: bytes, head: RequestHead) -> KnownHead:
        assert target == PATH
        assert head.headers[b"host"] == b"localhost"
        return ADMISSION

    def answer_at_once(self, admission: KnownHead, body: bytes) -> LaneAnswer:
        return LaneAnswer(200, b"", admission.caller.key_id.encode() + body)


def test_it_is_found_behind_a_wrapper() -> None:
    edge = Edge(_app, fast_lane=_Inner())
    assert edge.lane is not None
    assert lane_of(SimpleNamespace(app=SimpleNamespace(app=edge))) is edge.lane


def test_other_apps_have_none() -> None:
    assert lane_of(_app) is None
    assert lane_of(SimpleNamespace(app=None)) is None
    assert lane_of(Edge(_app)) is None


def test_the_edge_checks_what_takes_the_lane() -> None:
    lane = Edge(_app, fast_lane=_Inner()).lane
    assert lane is not None
    admission = lane.admit(PATH, HEADERS)
    assert admission is ADMISSION
    assert lane.answer_at_once(admission, b"!").body == b"k!"
    assert lane.admit(PATH, [(b"host", b"evil.example")]) is None
    assert lane.admit(PATH, [*HEADERS, (b"content-encoding", b"gzip")]) is None
    assert lane.admit(PATH, [*HEADERS, (b"x-request-id", b"mine")]) is None
