"""Write the external behavior to files, and compare them: `python -m bench.golden --out DIR [--compare OLD]`.

No part names modules or files, so moving code leaves them equal. Two runs of one checkout are byte-identical.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.golden import surface
from bench.golden.exchanges import exchanges

PARTS: dict[str, Callable[[Path], Any]] = {
    "openapi": lambda _: surface.openapi(),
    "metrics": surface.metrics,
    "urls": surface.urls,
    "schema": lambda _: surface.database_schema(),
    "simulate": surface.simulations,
    "exchanges": exchanges,
    "flags": lambda _: surface.flags(),
}
SHOWN_LINES = 200


def main(argv: Sequence[str] | None = None) -> int:
    """Write the parts, compare them if requested, and return 1 if they differ."""
    parser = argparse.ArgumentParser(prog="python -m bench.golden", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("var/golden"), help="directory to write to")
    parser.add_argument("--compare", type=Path, metavar="OLD", help="earlier run; exit with 1 on differences")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="parts to write (default: all)")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch:
        surface.set_up(Path(scratch))
        for name in options.parts:
            began = time.monotonic()
            value = PARTS[name](Path(scratch))
            text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
            (options.out / f"{name}.json").write_text(text + "\n")
            print(f"{name}: {len(value)} entries, {time.monotonic() - began:.1f} s", flush=True)
    return compare(options.compare, options.out, options.parts) if options.compare else 0


def compare(old: Path, new: Path, parts: Sequence[str]) -> int:
    """Print the differences between the parts in `new` and `old`. Return 1 if there are any, else 0."""
    changed = 0
    for name in parts:
        before, after = (
            path.read_text().splitlines() if path.exists() else []
            for path in (old / f"{name}.json", new / f"{name}.json")
        )
        lines = list(difflib.unified_diff(before, after, f"old/{name}", f"new/{name}", lineterm="", n=3))
        print("\n".join(lines[:SHOWN_LINES]) or f"{name}: equal")
        if len(lines) > SHOWN_LINES:
            print(f"… {len(lines) - SHOWN_LINES} more lines")
        changed += bool(lines) or not after
    return int(changed > 0)


if __name__ == "__main__":
    sys.exit(main())
