"""The command line of the installed application: `headway up`, `headway connect URL…`, `headway help`.

The application's rooms (gateway, web, …) have common names. They are in a private folder, which only Headway's own
processes put on their path.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOMS = Path(__file__).parent / "_rooms"


def main() -> None:
    """Run the command that the arguments name."""
    sys.path.insert(0, str(ROOMS))
    # Gateways, web, jobs, and simulated engines are further processes of this interpreter.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOMS), os.environ.get("PYTHONPATH"))))
    os.environ["HEADWAY_PROGRAM"] = "headway"
    if not os.environ.get("HEADWAY_STATE_DIR_FILE"):
        os.environ.setdefault("HEADWAY_STATE_DIR", str(_state_folder()))
    from manage import main as run

    run(["headway", *sys.argv[1:]])


def _state_folder() -> Path:
    """Return the user's folder for state: XDG's, or Application Support on macOS."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "headway"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "headway"
