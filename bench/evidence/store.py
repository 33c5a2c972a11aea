"""Results of measurements as committed files: settings, command, and rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path(__file__).resolve().parent.parent / "results"

Row = dict[str, Any]
"""One run: its parameters and figures. Tables are lists of lists."""


class MissingResultError(FileNotFoundError):
    """A measurement has no committed result. The message states how to create it."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement. Rows contain no wall time, so measuring again with the same code yields the same file."""

    name: str
    command: str
    settings: dict[str, Any]
    rows: list[Row]

    def find(self, **wanted: object) -> Row:
        """Return the only row with these values. Raises LookupError unless there is exactly one."""
        rows = self.where(**wanted)
        if len(rows) != 1:
            raise LookupError(f"{self.name}: {len(rows)} rows have {wanted}; measure it again")
        return rows[0]

    def where(self, **wanted: object) -> list[Row]:
        """Return all rows with these values, in order."""
        return [row for row in self.rows if all(row.get(name) == value for name, value in wanted.items())]

    def number(self, figure: str, **wanted: object) -> float:
        """Return a figure of the only row with these values. Raises LookupError if it is missing."""
        value = self.find(**wanted).get(figure)
        if not isinstance(value, int | float):
            raise LookupError(f"{self.name}: {figure} of {wanted} is {value!r}, not a number")
        return float(value)


def measured(*, name: str, settings: dict[str, Any], rows: list[Row]) -> Result:
    """Return the result of `python -m bench.evidence --measure NAME`."""
    return Result(name=name, command=f"python -m bench.evidence --measure {name}", settings=settings, rows=rows)


def save(result: Result) -> Path:
    """Write the result, rounded to six digits, to the document's folder. Return the file."""
    path = FOLDER / f"{result.name}.json"
    write(msgspec.structs.replace(result, rows=[_rounded(row) for row in result.rows]), path)
    return path


def write(result: Result, path: Path) -> None:
    """Write the result without rounding."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def load(name: str) -> Result:
    """Read a result. Raises MissingResultError."""
    path = FOLDER / f"{name}.json"
    if not path.is_file():
        raise MissingResultError(f"{path.name} is missing; run python -m bench.evidence --measure {name}")
    return msgspec.json.decode(path.read_bytes(), type=Result)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
