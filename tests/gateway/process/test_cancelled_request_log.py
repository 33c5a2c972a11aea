"""A request that the end of the program cuts off is told in one line, at a level that pages nobody."""

from __future__ import annotations

import asyncio
import json
import logging
import sys

from gateway.base.json_log import JsonFormatter
from gateway.process.cancelled_request_log import EVENT, CutOffRequests


def record_of(error: BaseException) -> logging.LogRecord:
    try:
        raise error
    except (asyncio.CancelledError, ValueError):
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


def test_the_server_s_own_word_of_it_is_a_warning() -> None:
    told = logging.LogRecord(
        "uvicorn.error",
        logging.ERROR,
        __file__,
        1,
        "Cancel %s running task(s), timeout graceful shutdown exceeded",
        (3,),
        None,
    )
    assert line_of(told)["level"] == "warning"
