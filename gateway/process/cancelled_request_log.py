"""Log entries for requests that are cut off at the program's end: one line each, no error."""

from __future__ import annotations

import asyncio
import logging

from typing_extensions import override

from gateway.base.event_log import LogEvent

EVENT = "request_cut_off_by_shutdown"


class CutOffRequests(logging.Filter):
    """Turns the server's traceback of a request that it cancelled at shutdown into an event at warning level.

    The server cancels what is still open once the time for a graceful end is over; its clients see their
    connection close before the answer is complete, which they retry elsewhere.
    """

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass; rewrite those that tell of a cancellation."""
        if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.msg, record.args = LogEvent(EVENT, {}), None
            record.event = EVENT
        elif "timeout graceful shutdown exceeded" in str(record.msg):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True
