"""`python -m simulator TRACE …`: `manage.py simulate` without Django."""

from __future__ import annotations

import sys

from simulator.command.simulate import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "python -m simulator"))
