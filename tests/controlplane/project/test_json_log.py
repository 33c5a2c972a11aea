"""Log settings of the control plane's processes."""

from __future__ import annotations

from pathlib import Path

from controlplane.project.json_log import logging_settings


def test_with_a_file_the_screen_gets_only_errors(tmp_path: Path) -> None:
    handlers = logging_settings("INFO", tmp_path / "log" / "x.log")["handlers"]
    assert handlers["stderr"]["level"] == "ERROR"
    assert handlers["file"]["maxBytes"] > 0


def test_celery_stays_quiet_unless_more_or_less_is_asked_for() -> None:
    assert logging_settings("INFO")["loggers"]["celery"]["level"] == "WARNING"
    assert logging_settings("DEBUG")["loggers"]["celery"]["level"] == "DEBUG"
    assert logging_settings("ERROR")["loggers"]["kombu"]["level"] == "ERROR"
