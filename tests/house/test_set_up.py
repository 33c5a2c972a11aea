""".ci/setup-python chooses the right interpreter. Stand-ins on a separate PATH replace the real ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.named_tests import ROOT

TOOLS = ("bash", "cat", "cut", "dirname", "mkdir", "cp", "sha256sum")
NEEDS = ("requirements.lock", "requirements-dev.lock", ".ci/setup-python")
# It answers the script's version check like an interpreter of its version.
STAND_IN = """#!{bash}
if [ "$1" = -c ]; then {{ echo "import sys; sys.version_info = {version}"; echo "$2"; }} | {python} -; exit; fi
echo "${{0##*/}} $*" >>log
if [ "$2" = venv ]; then mkdir -p .venv/bin && cp "$0" .venv/bin/python; fi
"""
BROKEN = """#!{bash}
echo "pyenv: the command exists in another version of Python" >&2
exit 127
"""
NONE: tuple[int, ...] = ()
"""A command that exists and runs no Python."""


def set_up(folder: Path, interpreters: Mapping[str, tuple[int, ...]]) -> subprocess.CompletedProcess[str]:
    """Run the script in a copy of its inputs, with only these interpreters on PATH."""
    path = folder / "bin"
    path.mkdir()
    for tool in TOOLS:
        program = shutil.which(tool)
        assert program
        (path / tool).symlink_to(program)
    for name, version in interpreters.items():
        text = STAND_IN if version else BROKEN
        (path / name).write_text(text.format(bash=path / "bash", version=(*version, 1), python=sys.executable))
        (path / name).chmod(0o755)
    for name in NEEDS:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    command = [str(path / "bash"), str(folder / ".ci/setup-python")]
    return subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("interpreters", "taken"),
    [
        ({"python3.11": (3, 11), "python3.12": (3, 12), "python3.13": (3, 13)}, "python3.11"),
        ({"python3.12": (3, 12), "python3.13": (3, 13), "python3": (3, 11)}, "python3.12"),
        ({"python3.13": (3, 13)}, "python3.13"),
        ({"python3": (3, 12)}, "python3"),
        ({"python3": (3, 10), "python": (3, 13)}, "python"),
        ({"python3.11": NONE, "python3.12": (3, 12)}, "python3.12"),
    ],
    ids=str,
)
def test_setup_uses_the_first_interpreter_in_the_supported_range(
    tmp_path: Path, interpreters: dict[str, tuple[int, ...]], taken: str
) -> None:
    done = set_up(tmp_path, interpreters)
    assert done.returncode == 0, done.stderr
    made, installed = (tmp_path / "log").read_text().splitlines()
    assert made == f"{taken} -m venv .venv"
    assert installed.startswith("python -m pip install")
    assert (tmp_path / ".venv/.ready").is_file()


@pytest.mark.parametrize(
    "interpreters", [{}, {"python3": (3, 10)}, {"python3": (3, 14)}, {"python3.12": NONE, "python": (2, 7)}], ids=str
)
def test_unsupported_interpreters_abort_setup_with_the_supported_versions(
    tmp_path: Path, interpreters: dict[str, tuple[int, ...]]
) -> None:
    done = set_up(tmp_path, interpreters)
    assert done.returncode == 1
    assert "needs Python 3.11, 3.12 or 3.13" in done.stderr
    assert not (tmp_path / ".venv").exists()
