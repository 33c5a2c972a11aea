"""Is there room for the database, logs and snapshots?"""

from __future__ import annotations

import shutil

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation

_MIB = 1 << 20
_LEAST, _GOOD = 200 * _MIB, 1024 * _MIB


def look(installation: Installation, *, free: int | None = None) -> list[Finding]:
    """Look at the free bytes of the state directory's file system."""
    try:
        left = free if free is not None else shutil.disk_usage(installation.state_dir).free
    except OSError as error:
        return [problem(f"The state directory's disk cannot be read: {error.strerror}.", "Create the directory first.")]
    text = f"{left // _MIB} MiB are free on the disk of {installation.state_dir}."
    if left >= _GOOD:
        return [ok(text)]
    do = "Free some space, or set SWITCHYARD_STATE_DIR to a larger disk."
    return [problem(text, do) if left < _LEAST else warning(text, do)]
