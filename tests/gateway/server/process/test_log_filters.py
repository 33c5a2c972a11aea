"""Requests cut off by shutdown, and client faults, are logged in one line below alert level."""

from __future__ import annotations

import asyncio
import json
import logging
import sys

import pytest
from aiohttp.http_exceptions import BadHttpMessage

from gateway.base.json_log import JsonFormatter
from gateway.server.http.guarded_receive import too_large
from gateway.server.process.log_filters import EVENT, ClientFaults, CutOffRequests


def record_of(error: BaseException) -> logging.LogRecord:
    try:
        raise error
    except (asyncio.CancelledError, Exception):  # noqa: BLE001 - whatever the test brings
        return logging.LogRecord("uvicorn.error", logging.ERROR, __file__, 1, "Exception in ASGI", None, sys.exc_info())


def line_of(record: logging.LogRecord) -> dict[str, object]:
    assert CutOffRequests().filter(record)
    return json.loads(JsonFormatter().format(record))


def test_a_cancelled_request_is_an_event_without_a_traceback() -> None:
    line = line_of(record_of(asyncio.CancelledError("timeout graceful shutdown exceeded")))
    assert (line["event"], line["level"]) == (EVENT, "warning")
    assert "traceback" not in line


def test_any_other_error_keeps_its_traceback() -> None:
    line = line_of(record_of(ValueError("broken")))
    assert line["level"] == "error"
    assert "ValueError: broken" in str(line["traceback"])


def test_the_servers_own_log_of_a_cancelled_request_is_a_warning() -> None:
    record = logging.LogRecord(
        "uvicorn.error",
        logging.ERROR,
        __file__,
        1,
        "Cancel %s running task(s), timeout graceful shutdown exceeded",
        (3,),
        None,
    )
    assert line_of(record)["level"] == "warning"


@pytest.mark.parametrize("error", [too_large(1), BadHttpMessage("no colon in a header")])
def test_client_faults_are_warnings_without_a_traceback(error: Exception) -> None:
    record = record_of(error)
    assert ClientFaults().filter(record)
    line = json.loads(JsonFormatter().format(record))
    assert line["level"] == "warning"
    assert "traceback" not in line


def test_a_client_error_status_is_a_client_fault_and_a_server_error_is_not() -> None:
    for status, level in ((400, "warning"), (431, "warning"), (500, "error"), (302, "error")):
        record = record_of(ValueError("broken"))
        record.status_code = status
        assert ClientFaults().filter(record)
        line = json.loads(JsonFormatter().format(record))
        assert (line["level"], "traceback" in line) == (level, level == "error")
    plain = record_of(ValueError("broken"))
    assert ClientFaults("ERROR").filter(plain)
    assert plain.exc_info


def test_a_handler_for_errors_gets_none_of_them() -> None:
    assert not ClientFaults("ERROR").filter(record_of(too_large(1)))
