"""Is the state directory there, ours to write, and closed to others?"""

from __future__ import annotations

import os
import stat

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation

_PRIVATE = ("first_run.json", "switchyard.sqlite3", "last-known-good.snapshot")


def look(installation: Installation) -> list[Finding]:
    """Look at the directory and at the files in it that hold secrets or hashes of them."""
    directory = installation.state_dir
    if not directory.is_dir():
        return [problem(f"The state directory {directory} does not exist.", f"Run `mkdir -m 700 {directory}`.")]
    if not os.access(directory, os.W_OK | os.X_OK):
        return [
            problem(f"The state directory {directory} is not writable.", "Make it owned by the user who runs this.")
        ]
    found = []
    for path in [directory, *(directory / name for name in _PRIVATE)]:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0
        if mode & 0o077:
            closed = "700" if path.is_dir() else "600"
            found.append(warning(f"Others can read {path} (mode {mode:04o}).", f"Run `chmod {closed} {path}`."))
    return found or [ok(f"Only its owner can access the state directory {directory}.")]
