"""Log settings of the control plane's processes: the gateway's format, with fewer messages from Celery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.base import json_log


def logging_settings(level: str, file: Path | None = None) -> dict[str, Any]:
    """Return a dictConfig: messages from `level` go to stderr or, with `file`, to a bounded file and only errors to
    stderr.
    """
    config = json_log.logging_settings(level, file)
    # Celery's info lines repeat each wake-up of a job; the job table has the same once.
    quiet = {"level": "WARNING" if level == "INFO" else level}
    config["loggers"] |= dict.fromkeys(("celery", "kombu", "amqp"), quiet)
    return config
