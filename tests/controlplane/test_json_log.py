"""One line of JSON per event, whatever it carries."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.json_log import JsonFormatter, logging_settings


def line(message: str, *args: Any, extra: dict[str, Any] | None = None, exc_info: Any = None) -> str:
    logger = logging.getLogger("t")
    record = logger.makeRecord("t", logging.WARNING, __file__, 1, message, args, exc_info, extra=extra)
    return JsonFormatter().format(record)


@pytest.mark.parametrize("text", ["a\nb", "a\r\n{}", "\x1b[31mred", "a\u2028b", "\x00", "\ud800", 'quote"'])
def test_an_event_is_one_line_of_ascii(text: str) -> None:
    written = line("engine %s", text, extra={"engine": text})
    assert written.isascii()
    assert written.isprintable()
    assert json.loads(written)["engine"] == text


def test_the_fields_of_an_event() -> None:
    event = json.loads(line("lost %s", "e-01", extra={"pool": "demo"}))
    assert (event["level"], event["logger"], event["message"], event["pool"]) == ("warning", "t", "lost e-01", "demo")


def test_a_traceback_stays_in_its_line() -> None:
    try:
        raise ValueError("x")
    except ValueError:
        written = line("failed", exc_info=sys.exc_info())
    assert "\n" not in written
    assert "ValueError: x" in json.loads(written)["traceback"]


def test_a_value_json_cannot_hold_is_written_as_text() -> None:
    assert json.loads(line("x", extra={"path": Path("/a")}))["path"] == "/a"


def test_with_a_file_the_screen_gets_only_errors(tmp_path: Path) -> None:
    handlers = logging_settings("INFO", tmp_path / "log" / "x.log")["handlers"]
    assert handlers["stderr"]["level"] == "ERROR"
    assert handlers["file"]["maxBytes"] > 0
