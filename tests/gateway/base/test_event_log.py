"""Log events are one line of JSON, whatever a name contains."""

from __future__ import annotations

import json
import logging

import pytest

from gateway.base.event_log import log_event


def test_control_characters_cannot_end_the_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="gateway")
    name = "a\r\nb\x1b[31mc\u2028d\u0085e%s"
    log_event("breaker", engine=name, count=3, ok=None)
    (record,) = caplog.records
    line = record.getMessage()
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == {"event": "breaker", "engine": name, "count": 3, "ok": None}


def test_a_disabled_level_costs_and_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="gateway")
    log_event("quiet", value=object())  # type: ignore[arg-type]
    assert caplog.records == []
