"""Errors that the tested program would write to its log."""

from __future__ import annotations

import logging

import pytest

from gateway.server.process.log_filters import ClientFaults


def logged_errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the errors that a log handler of the program would write."""
    records = [record for record in caplog.records if record.levelno >= logging.ERROR]
    return [record.getMessage() for record in records if ClientFaults("ERROR").filter(record)]
