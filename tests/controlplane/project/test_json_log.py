"""Log settings of the control plane's processes."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from controlplane.project.json_log import logging_settings
from gateway.base.json_log import JsonFormatter
from gateway.server.process.log_filters import ClientFaults


def test_with_a_log_file_the_console_gets_only_errors(tmp_path: Path) -> None:
    handlers = logging_settings("INFO", tmp_path / "log" / "x.log")["handlers"]
    assert handlers["stderr"]["level"] == "ERROR"
    assert handlers["file"]["maxBytes"] > 0


def test_celery_logs_warnings_unless_the_level_is_debug_or_error() -> None:
    assert logging_settings("INFO")["loggers"]["celery"]["level"] == "WARNING"
    assert logging_settings("DEBUG")["loggers"]["celery"]["level"] == "DEBUG"
    assert logging_settings("ERROR")["loggers"]["kombu"]["level"] == "ERROR"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Return the log of a control plane process."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(ClientFaults())
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


FIELDS = "&".join(f"field-{number}=1" for number in range(3000))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/login", FIELDS, "application/x-www-form-urlencoded"),
        ("/login", b"--x\r\nContent", "multipart/form-data"),
        ("/login", "username=a", "application/x-www-form-urlencoded; charset=utf-16"),
        (f"/login?{FIELDS}", "username=a", "application/x-www-form-urlencoded"),
        ("/no/such/" + "a" * 30_000, "", "text/plain"),
    ],
)
def test_anonymous_requests_are_logged_in_short_lines_without_errors(
    written: io.StringIO, path: str, body: str | bytes, kind: str
) -> None:
    answer = Client(raise_request_exception=False).post(path, body, content_type=kind)
    assert 400 <= answer.status_code < 500
    lines = written.getvalue().splitlines()
    assert lines
    assert max(map(len, lines)) < 5000
    for line in map(json.loads, lines):
        assert line["level"] == "warning"
        assert "traceback" not in line
