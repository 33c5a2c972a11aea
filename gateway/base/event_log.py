"""Logs one JSON line per notable event, in the `gateway` logger.

Values are ids, codes and numbers that this program made, and a client's X-Request-Id, which is short visible ASCII.
Other client text is never logged. Lines are ASCII, so a value cannot break out of its line.
"""

from __future__ import annotations

import json
import logging

from typing_extensions import override

Field = str | float | bool | None

_logger = logging.getLogger("gateway")
_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "at", "level", "logger"}


class LogEvent:
    """The message of an event's record. Its text is the event and its fields as JSON.

    gateway.base.json_log writes the record's fields at the top level of its line instead.
    """

    __slots__ = ("_event", "_fields")

    def __init__(self, event: str, fields: dict[str, Field]) -> None:
        self._event = event
        self._fields = fields

    @override
    def __str__(self) -> str:
        return json.dumps({"event": self._event, **self._fields}, ensure_ascii=True, allow_nan=False)


def log_event(event: str, *, level: int = logging.INFO, **fields: Field) -> None:
    """Log `event` with its fields. A field with the name of a standard log record attribute gets the suffix "_"."""
    if _logger.isEnabledFor(level):
        named = {f"{name}_" if name in _RESERVED else name: value for name, value in fields.items()}
        _logger.log(level, LogEvent(event, named), extra={"event": event, **named})
