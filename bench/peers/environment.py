"""Virtual environments for peers, so that none of their packages enters Headway's own environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path("var/peers")


def peer_python(name: str, requirement: str) -> Path:
    """Return the interpreter of an environment with `requirement` installed, creating it if needed.

    Raises RuntimeError with pip's last lines if pip cannot install it.
    """
    folder = FOLDER / name
    python, stamp = folder / "bin" / "python", folder / "installed"
    if stamp.is_file() and stamp.read_text() == requirement:
        return python
    print(f"Installing {requirement} into {folder} (once) ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{requirement} cannot be installed:\n" + "\n".join(done.stderr.splitlines()[-5:]))
    stamp.write_text(requirement)
    return python
