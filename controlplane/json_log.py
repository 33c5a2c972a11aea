"""Log settings: one JSON line per event, whatever characters a name or message carries."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typing_extensions import override

_PLAIN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_MAX_BYTES = 5_000_000
_BACKUPS = 3


class JsonFormatter(logging.Formatter):
    """Renders a record as one line of ASCII JSON: control and separator characters stay escaped."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Return the line: time, level, logger, message, the `extra` fields, and the traceback if there is one."""
        event: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        event.update((name, value) for name, value in vars(record).items() if name not in _PLAIN_FIELDS)
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str)


def logging_settings(level: str, file: Path | None = None) -> dict[str, Any]:
    """Return a dictConfig: everything from `level` to stderr, or to a bounded `file` with only errors on stderr."""
    handlers: dict[str, Any] = {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "json",
            "level": "ERROR" if file else level,
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
            "delay": True,
        }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "controlplane.json_log.JsonFormatter"}},
        "handlers": handlers,
        "root": {"level": level, "handlers": list(handlers)},
        "loggers": {
            # Celery's info lines repeat each wake-up of a job; the job table says the same once.
            name: {"level": "WARNING" if level == "INFO" else level}
            for name in ("celery", "kombu", "amqp", "asyncio")
        },
    }
