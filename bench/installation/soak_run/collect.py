"""Add reports of soaks to the committed result: `python -m bench.installation.soak_run.collect REPORT.json…`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from bench.evidence.store import Result, Row, save


def result_of(reports: Sequence[dict[str, dict[str, float]]]) -> Result:
    """Return one row per report, ordered by seed."""
    rows: list[Row] = [
        {**report["figures"], "wrong": report["targets"]["wrong"]["value"]}  # type: ignore[index]
        for report in reports
    ]
    return Result(
        name="soak",
        command="python -m bench.installation.soak --minutes M --seed S",
        settings={},
        rows=sorted(rows, key=lambda row: float(str(row["seed"]))),
    )


def main() -> None:
    """Read the reports and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", type=Path, nargs="+")
    save(result_of([json.loads(path.read_text()) for path in parser.parse_args().reports]))


if __name__ == "__main__":
    main()
