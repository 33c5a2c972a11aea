"""The gateway of another demo region: runs `python -m gateway` as a child of this installation."""

from __future__ import annotations

import sys

from controlplane.project.processes.child_start import begin
from gateway.__main__ import main

if __name__ == "__main__":
    options = sys.argv[2:]
    sys.argv[1:] = sys.argv[1:2]
    begin()
    sys.argv[1:] = options
    sys.exit(main())
