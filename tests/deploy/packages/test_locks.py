"""Every locked package has a wheel, with a locked hash, for each Python that Headway supports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.packages.package_tools import DEPLOY, installed

ROOT = DEPLOY.parent
VERSIONS = ("3.11", "3.12", "3.13")
PLATFORMS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")


@pytest.mark.thorough
@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock", "deploy/requirements-envoy.lock"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_locked_package_has_a_wheel(platform: str, version: str, lock: str, tmp_path: Path) -> None:
    command = [installed() / "bin" / "uv", "pip", "install", "--no-config", "--dry-run", "--target", tmp_path]
    command += ["--python", sys.executable, "--python-version", version, "--python-platform", platform]
    command += ["--only-binary", ":all:", "--require-hashes", "-r", lock]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Would install" in done.stderr


def test_the_supported_versions_are_those_of_the_project_metadata() -> None:
    assert 'requires-python = ">=3.11,<3.14"' in (ROOT / "pyproject.toml").read_text()
