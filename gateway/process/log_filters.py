"""Log entries of libraries for faults outside of this program: one short line each, and no error."""

from __future__ import annotations

import asyncio
import logging

from aiohttp.http_exceptions import HttpProcessingError
from typing_extensions import override

from gateway.base.event_log import LogEvent
from gateway.http.guarded_receive import RejectedAtEdgeError

EVENT = "request_cut_off_by_shutdown"
_CLIENTS_FAULTS = (HttpProcessingError, RejectedAtEdgeError)
_UTF8_FAULT = "Invalid UTF-8 sequence received from client."
"""uvicorn's message about a websocket's text."""


class CutOffRequests(logging.Filter):
    """Turns the server's traceback of a request that it cancelled at shutdown into an event at warning level.

    The server cancels open requests once the time for a graceful end is over; their clients see the connection close
    before the answer is complete, and retry elsewhere.
    """

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass; rewrite those that report a cancellation."""
        if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.msg, record.args = LogEvent(EVENT, {}), None
            record.event = EVENT
        elif "timeout graceful shutdown exceeded" in str(record.msg):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


class ClientFaults(logging.Filter):
    """Removes the traceback from faults of clients, and makes them warnings: any client may cause any number.

    `level` is that of its handler, which has let the record pass by then.
    """

    def __init__(self, level: str = "NOTSET") -> None:
        super().__init__()
        self._least = logging.getLevelNamesMapping()[level]

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record, rewritten where a client caused it, is still for the handler."""
        error = record.exc_info[1] if record.exc_info else None
        # Django names the status of each answer that it logs.
        rejected = 400 <= getattr(record, "status_code", 0) < 500
        if rejected or isinstance(error, _CLIENTS_FAULTS) or record.msg == _UTF8_FAULT:
            record.exc_info = record.exc_text = None
            if record.levelno > logging.WARNING:
                record.levelno, record.levelname = logging.WARNING, "WARNING"
        return record.levelno >= self._least
