"""`python -m bench.evidence` writes docs/evidence.md from the committed results; `--measure` measures them again.

Measuring needs the public traces (HEADWAY_TRACES names their folder) and takes minutes. Every run yields the same
files, since simulations are functions of their seed.
"""

from __future__ import annotations

import argparse
import sys

from bench.evidence.document import DOCUMENT, build
from bench.evidence.measures import MEASURES
from bench.evidence.store import MissingResultError, save


def main() -> int:
    """Make the requested measurements, then write the document. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.evidence", description=__doc__)
    parser.add_argument(
        "--measure", nargs="*", metavar="NAME", help=f"measure first; all, or some of {', '.join(MEASURES)}"
    )
    parser.add_argument("--jobs", type=int, default=2, help="number of parallel processes")
    options = parser.parse_args()
    names = options.measure if options.measure is not None else []
    unknown = [name for name in names if name not in MEASURES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(MEASURES)}")
    for name in names or (MEASURES if options.measure is not None else []):
        print(f"-> {save(MEASURES[name](options.jobs))}", flush=True)
    try:
        build()
    except MissingResultError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"-> {DOCUMENT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
