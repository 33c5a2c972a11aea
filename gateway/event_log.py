"""One JSON line per notable event, in the `gateway` logger.

Values are ids, codes and numbers that this program made; text that came from a client never goes in.
Lines are ASCII, so that no value can break out of its line.
"""

from __future__ import annotations

import json
import logging

_logger = logging.getLogger("gateway")


def log_event(event: str, *, level: int = logging.INFO, **fields: str | float | bool | None) -> None:
    """Write `event` with its fields as one line of JSON."""
    if _logger.isEnabledFor(level):
        _logger.log(level, "%s", json.dumps({"event": event, **fields}, ensure_ascii=True, allow_nan=False))
