"""Log filters for faults outside of this program: one short line each, and no error."""

from __future__ import annotations

import asyncio
import logging

from typing_extensions import override

from gateway.base.event_log import LogEvent
from gateway.server.http.guarded_receive import RejectedAtEdgeError

EVENT = "request_cut_off_by_shutdown"
_PARSER_FAULTS = "aiohttp.http_exceptions"
"""Module of aiohttp's errors about unreadable requests. It is not imported: most processes that log do without it."""
_UTF8_FAULT = "Invalid UTF-8 sequence received from client."
"""uvicorn's message about invalid text on a websocket."""


class CutOffRequests(logging.Filter):
    """Replaces the server's traceback for a request cancelled at shutdown by an event at warning level.

    The server cancels open requests after the time for a graceful shutdown. Their clients see the connection close
    before the answer is complete, and retry elsewhere.
    """

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Pass every record, and rewrite those that report a cancellation."""
        if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.msg, record.args = LogEvent(EVENT, {}), None
            record.event = EVENT
        elif "timeout graceful shutdown exceeded" in str(record.msg):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


class ClientFaults(logging.Filter):
    """Removes the traceback from clients' faults and logs them as warnings, because clients can cause any number of
    them.

    `level` is the level of the handler, which has already accepted the record.
    """

    def __init__(self, level: str = "NOTSET") -> None:
        super().__init__()
        self._least = logging.getLevelNamesMapping()[level]

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the handler still accepts the record, which is rewritten if a client caused it."""
        error = record.exc_info[1] if record.exc_info else None
        # Django names the status of each answer that it logs.
        rejected = 400 <= getattr(record, "status_code", 0) < 500
        unreadable = isinstance(error, RejectedAtEdgeError) or type(error).__module__ == _PARSER_FAULTS
        if rejected or unreadable or record.msg == _UTF8_FAULT:
            record.exc_info = record.exc_text = None
            if record.levelno > logging.WARNING:
                record.levelno, record.levelname = logging.WARNING, "WARNING"
        return record.levelno >= self._least
