"""Parses a pasted list or CSV file of engines. Each line yields an engine or an error.

Fields are recognized by their form, so that most lists can be pasted as they are: a URL, tcp:// endpoints (events, then
replay), a number (speed), a role (prefill, decode, mixed), and plain words (name, then pool). Alternatively, a header
line names the columns. This module asks no database: engine_paste_preview checks whether names are available.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from controlplane.fleet.engine_registration import SOCKET_FIELDS
from controlplane.fleet.models.engine import Engine, EngineRole
from controlplane.platform.resource.csv_text import cell_text
from controlplane.platform.resource.declared_field import declaration_of, settable_fields
from controlplane.platform.resource.field_text import read_texts
from routing.values.counted import count

MAX_LINES = 500
MAX_LINE_CHARS = 1000
MAX_BYTES = 256 << 10

FIELDS = settable_fields(Engine, creating=True)
_COLUMNS = {name: name for name in FIELDS} | {
    alias: name for name, field in FIELDS.items() for alias in declaration_of(field).aliases
}
_DELIMITERS = ("\t", ";", ",", " ")
_ANY_DELIMITER = re.compile(r"[\s,;]+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")


class UnreadablePasteError(ValueError):
    """The whole text is unreadable. The message explains the reason and the fix."""


@dataclass(frozen=True, slots=True)
class PastedLine:
    """One line of the list."""

    number: int
    """Line number, from 1."""
    text: str
    engine: Mapping[str, Any] | None = None
    """The given fields of the engine, its name and URL among them; `pool` is a slug. None: there is no URL."""
    problems: tuple[str, ...] = ()

    @property
    def fine(self) -> bool:
        """Return whether an engine can be registered from the line."""
        return self.engine is not None and not self.problems


def decode_upload(data: bytes) -> str:
    """Return the text of an uploaded file. Raises UnreadablePasteError."""
    if len(data) > MAX_BYTES:
        raise UnreadablePasteError(f"The file has more than {MAX_BYTES >> 10} KiB; split it.")
    try:
        # Spreadsheets begin a CSV file with a byte order mark.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadablePasteError("The file is not UTF-8 text; save it as CSV in UTF-8.") from None


def split_lines(text: str) -> list[str]:
    """Return the lines that are not blank. Raises UnreadablePasteError if there are too many."""
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith("#")]
    if len(kept) > MAX_LINES:
        raise UnreadablePasteError(
            f"{count(len(kept), 'line is', 'lines are')} over the limit of {MAX_LINES}; paste them in parts."
        )
    return kept


def parse_lines(texts: Sequence[str]) -> list[PastedLine]:
    """Parse each line. If the first line is a header, it sets the order of fields and is not returned."""
    sign, header = _columns(texts)
    body = list(enumerate(texts, start=1))[1 if header else 0 :]
    return _without_doubles([_parse(number, text, sign, header) for number, text in body])


def header_of(texts: Sequence[str]) -> str:
    """Return the header line; empty if there is none."""
    return texts[0] if _columns(texts)[1] else ""


def _columns(texts: Sequence[str]) -> tuple[str, list[str]]:
    """Return the field separator, and the columns of the header line (empty without a header)."""
    for sign in _DELIMITERS if texts else ():
        if header := _header(_cells(texts[0], sign)):
            return sign, header
    return "", []


def _cells(text: str, sign: str) -> list[str]:
    """Split at the separator as CSV does; without a separator, at characters that no field can contain."""
    if not sign:
        return [cell.strip("\"'") for cell in _ANY_DELIMITER.split(text)]
    try:
        row = next(csv.reader(io.StringIO(text), delimiter=sign, skipinitialspace=True), [])
    except csv.Error:
        row = text.split(sign)
    return [cell_text(cell.strip()) for cell in row]


def _header(cells: Sequence[str]) -> list[str]:
    names = [_COLUMNS.get(cell.lower(), "?" if cell else "") for cell in cells]
    return names if "url" in names and "?" not in names else []


def _parse(number: int, text: str, sign: str, header: Sequence[str]) -> PastedLine:
    if len(text) > MAX_LINE_CHARS:
        problem = f"The line has more than {MAX_LINE_CHARS:,} characters."
        return PastedLine(number, text[:MAX_LINE_CHARS], problems=(problem,))
    cells = _cells(text, sign)
    fields, problems = _by_header(cells, header) if header else _by_form(cells)
    return _line(number, text, fields, problems)


def _by_header(cells: Sequence[str], header: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    problems = []
    if len(cells) > len(header):
        problems.append(f"{count(len(cells), 'field')}, but the first line names {count(len(header), 'column')}.")
    pairs = zip(header, cells, strict=False)
    return {name: cell for name, cell in pairs if name and cell}, problems


def _by_form(cells: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    fields: dict[str, str] = {}
    problems = []
    for cell in filter(None, cells):
        column = next((column for column in _columns_of(cell) if column not in fields), None)
        if column is None:
            problems.append(
                f"“{_shown(cell)}” is one field too many; a line is name, pool, URL, tcp endpoints, speed, role."
            )
        else:
            fields[column] = cell
    return fields, problems


def _columns_of(cell: str) -> tuple[str, ...]:
    """Return the fields that the cell may contain, most likely first."""
    if cell.lower().startswith(("http://", "https://")):
        return ("url",)
    if cell.lower().startswith("tcp://"):
        return SOCKET_FIELDS
    if _NUMBER.fullmatch(cell):
        return ("speed",)
    if cell.lower() in EngineRole.values:
        return ("role",)
    return ("name", "pool")


def _line(number: int, text: str, fields: dict[str, str], problems: list[str]) -> PastedLine:
    if "url" not in fields:
        return PastedLine(number, text, problems=(*problems, "No URL; add one such as http://10.0.3.7:8000."))
    fields = {"name": name_of_url(fields["url"]), **fields}
    if "role" in fields:
        fields["role"] = fields["role"].lower()
    values, wrong = read_texts({name: FIELDS[name] for name in fields}, fields)
    problems += [
        f"{declaration_of(FIELDS[one.path]).title} “{_shown(fields[one.path])}”: {one.message}" for one in wrong
    ]
    return PastedLine(number, text, {**fields, **values}, tuple(problems))


def name_of_url(url: str) -> str:
    """Return a name made of host, port, and rank, for an engine without a given name."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", parts.netloc.rpartition("@")[2]).strip("-")
    return f"{name[:54]}-rank-{parts.fragment}" if parts.fragment else name[:64]


def _without_doubles(lines: Sequence[PastedLine]) -> list[PastedLine]:
    """Add a problem to lines that repeat the URL, or the name in the same pool, of an earlier line."""
    seen: dict[tuple[str, ...], int] = {}
    checked = []
    for line in lines:
        problems = list(line.problems)
        if line.engine is not None:
            url = line.engine["url"].rstrip("/").lower()
            name = (line.engine.get("pool", ""), line.engine["name"])
            for key, what in ((("url", url), "URL"), (("name", *name), "name")):
                first = seen.setdefault(key, line.number)
                if first != line.number:
                    problems.append(f"Line {first} has the same {what}.")
        checked.append(PastedLine(line.number, line.text, line.engine, tuple(problems)))
    return checked


def _shown(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
