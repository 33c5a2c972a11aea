"""Every log event is one flat line of JSON (R40)."""

from __future__ import annotations

import io
import json
import logging
import logging.config
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from gateway.base.event_log import log_event
from gateway.base.json_log import JsonFormatter, logging_settings

EVIL = [
    "a\nb",
    "a\r\n{}",
    "\x1b[31mred",
    "a\u2028b",
    "a\u2029b",
    "a\u0085b",
    "\x00",
    "\x7f",
    "\ud800",
    'quote"',
    "%s %d",
]


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Return the formatter's output for the gateway's logger."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("gateway")
    before, logger.level = logger.level, logging.INFO
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)
    logger.level = before


def line(message: str, *args: Any, extra: dict[str, Any] | None = None, exc_info: Any = None) -> str:
    logger = logging.getLogger("t")
    record = logger.makeRecord("t", logging.WARNING, __file__, 1, message, args, exc_info, extra=extra)
    return JsonFormatter().format(record)


@pytest.mark.parametrize("text", EVIL)
def test_an_event_is_one_ascii_line(text: str) -> None:
    made = line("engine %s", text, extra={"engine": text})
    assert made.isascii()
    assert made.isprintable()
    assert json.loads(made)["engine"] == text


@pytest.mark.parametrize("text", EVIL)
def test_a_gateway_event_is_flat_and_stays_on_one_line(written: io.StringIO, text: str) -> None:
    log_event("breaker", engine=text, count=3, ok=None)
    (made,) = written.getvalue().split("\n")[:-1]
    assert made.isascii()
    assert made.isprintable()
    event = json.loads(made)
    assert {name: event[name] for name in ("event", "engine", "count", "ok", "level", "logger")} == {
        "event": "breaker",
        "engine": text,
        "count": 3,
        "ok": None,
        "level": "info",
        "logger": "gateway",
    }
    assert "message" not in event


def test_names_reserved_by_log_records_are_kept_apart(written: io.StringIO) -> None:
    log_event("e", name="n", message="m", args="a", at=1.0, logger="l", msg="x", exc_info="y")
    event = json.loads(written.getvalue())
    assert (event["name_"], event["message_"], event["args_"], event["at_"], event["logger_"]) == (
        "n",
        "m",
        "a",
        1,
        "l",
    )
    assert event["logger"] == "gateway"


@given(st.dictionaries(st.text(max_size=8), st.one_of(st.text(), st.floats(), st.integers(), st.none()), max_size=4))
def test_no_field_starts_a_second_line(fields: dict[str, Any]) -> None:
    plain = vars(logging.makeLogRecord({}))
    made = line(
        "x", extra={name: value for name, value in fields.items() if name not in {*plain, "message", "asctime"}}
    )
    assert made.isprintable()
    json.loads(made, parse_constant=pytest.fail)


def test_events_carry_their_fields() -> None:
    event = json.loads(line("lost %s", "e-01", extra={"pool": "demo"}))
    assert (event["level"], event["logger"], event["message"], event["pool"]) == ("warning", "t", "lost e-01", "demo")


def test_a_traceback_stays_on_the_events_line() -> None:
    try:
        raise ValueError("x")
    except ValueError:
        made = line("failed", exc_info=sys.exc_info())
    assert "\n" not in made
    assert "ValueError: x" in json.loads(made)["traceback"]


def test_a_value_that_json_cannot_represent_is_written_as_text() -> None:
    endless: dict[str, Any] = {}
    endless["self"] = endless
    event = json.loads(line("x", extra={"path": Path("/a"), "share": float("nan"), "endless": endless}))
    assert (event["path"], event["share"]) == ("/a", "nan")
    assert event["endless"].startswith("{")


def test_the_log_settings_select_json(tmp_path: Path) -> None:
    config = logging_settings("INFO", tmp_path / "log" / "x.log")
    assert config["handlers"]["stderr"]["level"] == "ERROR"
    assert {handler["formatter"] for handler in config["handlers"].values()} == {"json"}
    assert config["formatters"]["json"]["()"] == "gateway.base.json_log.JsonFormatter"


def test_fields_chosen_by_clients_are_limited_in_length() -> None:
    class Request:
        @override
        def __repr__(self) -> str:
            return "<GET " + "q" * 60_000 + ">"

    made = line("Not Found: %s", "/" + "a" * 60_000, extra={"request": Request(), "path": "b" * 60_000, "count": 3})
    assert len(made) < 10_000
    event = json.loads(made)
    assert event["message"].endswith("… (60012 characters)")
    assert event["count"] == 3
