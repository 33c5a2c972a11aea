"""Formats log lines of every process as one flat JSON line per event, whatever characters the values contain."""

from __future__ import annotations

import json
import logging
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typing_extensions import override

from gateway.base.event_log import LogEvent

_PLAIN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_MAX_BYTES = 5_000_000
_BACKUPS = 3
_MAX_TEXT = 2000
"""Maximum characters of one field, because clients choose the length of some logged texts."""
_MAX_TRACEBACK = 20_000
"""Maximum characters of a traceback. Its end is kept, because it states the error."""


class JsonFormatter(logging.Formatter):
    """Renders a record as one line of ASCII JSON, with control and separator characters escaped."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Return the line: time, level, logger, event or message, the fields, and the traceback if any."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if not isinstance(record.msg, LogEvent):
            line["message"] = _short(record.getMessage())
        for name, value in vars(record).items():
            if name not in _PLAIN_FIELDS:
                line[f"{name}_" if name in line else name] = _short(value)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)[-_MAX_TRACEBACK:]
        return _dumps(line)


def logging_settings(level: str, file: Path | None = None) -> dict[str, Any]:
    """Return a dictConfig that logs from `level` to stderr, or to a bounded `file` with only errors on stderr."""
    stderr_level = "ERROR" if file else level
    handlers: dict[str, Any] = {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "json",
            "level": stderr_level,
            "filters": ["stderr"],
        }
    }
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        handlers["file"] = {
            "class": "logging.handlers.RotatingFileHandler",
            "filename": str(file),
            "maxBytes": _MAX_BYTES,
            "backupCount": _BACKUPS,
            "formatter": "json",
            "filters": ["file"],
            "delay": True,
        }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {
            "cut_off": {"()": "gateway.server.process.log_filters.CutOffRequests"},
            "stderr": {"()": "gateway.server.process.log_filters.ClientFaults", "level": stderr_level},
            "file": {"()": "gateway.server.process.log_filters.ClientFaults"},
        },
        "formatters": {"json": {"()": "gateway.base.json_log.JsonFormatter"}},
        "handlers": handlers,
        "root": {"level": level, "handlers": list(handlers)},
        "loggers": {
            "asyncio": {"level": "WARNING" if level == "INFO" else level},
            "uvicorn.error": {"filters": ["cut_off"]},
            # It warns of each unreadable form, which clients learn from the answer.
            "python_multipart": {"level": "CRITICAL"},
        },
    }


def _short(value: Any) -> Any:
    """Return a text, or an object's description, cut to the limit. Return other values unchanged."""
    if value is None or isinstance(value, (bool, int, float, list, tuple, dict)):
        return value
    text = str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text)} characters)"


def _dumps(line: dict[str, Any]) -> str:
    try:
        return json.dumps(line, default=str, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        # NaN, a key that is no text, an endless structure: each such field is written as text.
        return json.dumps({str(name): _plain(value) for name, value in line.items()})


def _plain(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)
