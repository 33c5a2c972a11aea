"""Imports between rooms, and between folders of a room, go one way. The contracts are in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest
from importlinter import configuration
from importlinter.application.use_cases import lint_imports

ROOT = Path(__file__).resolve().parents[2]


def test_every_import_contract_holds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    # Not through importlinter.cli: it configures the logging of the whole process.
    configuration.configure()
    held = lint_imports(config_filename="pyproject.toml", cache_dir=None, no_logo=True)
    assert held, capsys.readouterr().out
