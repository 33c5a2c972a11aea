"""The tools that make test-packages installs; tests are skipped without them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


def tool(name: str) -> str:
    """Return the path of a program, from PACKAGES_<NAME> or the PATH; skip the test without it."""
    path = os.environ.get(f"PACKAGES_{name.upper().replace('-', '_')}") or shutil.which(name)
    if not path:
        pytest.skip(f"no {name}: make test-packages installs it where it can")
    return path


def installed() -> Path:
    """Return the folder of the Python packages; skip the test without it."""
    folder = os.environ.get("PACKAGES")
    if not folder:
        pytest.skip("run by make test-packages, which installs what it needs")
    return Path(folder)
