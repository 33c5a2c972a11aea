"""The fast path is discovered behind wrappers, and only if the app has one."""

from __future__ import annotations

from types import SimpleNamespace

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.server.http.edge import Edge
from gateway.server.http.request_head import RequestHead, new_id
from gateway.server.http.sync_fast_path import PATH, FastAnswer, KnownHead, fast_path_of

HEADERS = [(b"host", b"localhost")]
ADMISSION = KnownHead(ApiKeyEntry(key_id="k", sha256="", tenant_id="t"), None)


async def _app(*_: object) -> None:
    raise AssertionError("the fast path does not call the app")


class _Inner:
    new_id = staticmethod(new_id)

    def admit(self, target: bytes, head: RequestHead) -> KnownHead:
        assert target == PATH
        assert head.headers[b"host"] == b"localhost"
        return ADMISSION

    def answer_at_once(self, admission: KnownHead, body: bytes) -> FastAnswer:
        return FastAnswer(200, b"", admission.caller.key_id.encode() + body)


def test_the_fast_path_is_discovered_behind_a_wrapper() -> None:
    edge = Edge(_app, fast_path=_Inner())
    assert edge.fast_path is not None
    assert fast_path_of(SimpleNamespace(app=SimpleNamespace(app=edge))) is edge.fast_path


def test_apps_without_a_fast_path_report_none() -> None:
    assert fast_path_of(_app) is None
    assert fast_path_of(SimpleNamespace(app=None)) is None
    assert fast_path_of(Edge(_app)) is None


def test_the_edge_checks_fast_path_requests() -> None:
    fast_path = Edge(_app, fast_path=_Inner()).fast_path
    assert fast_path is not None
    admission = fast_path.admit(PATH, HEADERS)
    assert admission is ADMISSION
    assert fast_path.answer_at_once(admission, b"!").body == b"k!"
    assert fast_path.admit(PATH, [(b"host", b"evil.example")]) is None
    assert fast_path.admit(PATH, [*HEADERS, (b"content-encoding", b"gzip")]) is None
    assert fast_path.admit(PATH, [*HEADERS, (b"x-request-id", b"mine")]) is None
