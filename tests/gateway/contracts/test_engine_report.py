"""Engine reports: the wire format, and what they state about serving."""

from __future__ import annotations

import pytest

from gateway.contracts.engine_report import EngineReport, decode_report, encode_report, load_topic
from gateway.contracts.wire import UnreadableMessageError


def report(*, reachable: bool = True, healthy: bool = True, readable: bool = True, reason: str = "") -> EngineReport:
    return EngineReport(engine_id="e1", at=1.0, reachable=reachable, healthy=healthy, readable=readable, reason=reason)


def test_a_report_round_trips() -> None:
    sent = report(healthy=False, reason="health answered 503")
    assert decode_report(encode_report(sent)) == sent


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x81\xa1a\x01", b"{}"])
def test_malformed_reports_are_rejected_as_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableMessageError):
        decode_report(data)


def test_an_engine_with_unreadable_metrics_still_serves() -> None:
    assert report().serves
    assert report(healthy=False, readable=False, reason="metrics are unreadable: …").serves
    assert not report(healthy=False, reason="health answered 503").serves
    assert not report(reachable=False, healthy=False, readable=False, reason="connection refused").serves


def test_each_engine_has_its_own_topic() -> None:
    assert load_topic("e1") == "load/e1"
