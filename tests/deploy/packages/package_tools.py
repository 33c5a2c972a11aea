"""What make test-packages installs, and what is skipped without it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


def tool(name: str) -> str:
    """Return the path of a program, from PACKAGES_<NAME> or the PATH; skips without it."""
    found = os.environ.get(f"PACKAGES_{name.upper().replace('-', '_')}") or shutil.which(name)
    if not found:
        pytest.skip(f"no {name}: make test-packages installs it where it can")
    return found


def installed() -> Path:
    """Return the folder of the Python packages; skips without it."""
    folder = os.environ.get("PACKAGES")
    if not folder:
        pytest.skip("run by make test-packages, which installs what it needs")
    return Path(folder)
