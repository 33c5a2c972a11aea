"""Parses a pasted list or CSV file of engines. Each line yields an engine or an error.

Fields are recognized by their form, so that most lists can be pasted as they are: a URL, tcp:// endpoints (events, then
replay), a number (speed), a role (prefill, decode, mixed), and plain words (name, then pool). Alternatively, a header
line names the columns. This module needs no database: engine_paste_preview checks whether names are available.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from routing.values.counted import count

MAX_LINES = 500
MAX_LINE_CHARS = 1000
MAX_BYTES = 256 << 10

COLUMNS = ("name", "pool", "url", "events", "replay", "speed", "role")
ROLES = ("mixed", "prefill", "decode")
_ALIASES = {
    "engine": "name",
    "address": "url",
    "kv_events_endpoint": "events",
    "kv_events": "events",
    "kv_replay_endpoint": "replay",
    "kv_replay": "replay",
}
_DELIMITERS = ("\t", ";", ",", " ")
_ANY_DELIMITER = re.compile(r"[\s,;]+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")
_SLUG = re.compile(r"[A-Za-z0-9_-]{1,64}")


class UnreadablePasteError(ValueError):
    """The whole text is unreadable. The message explains the reason and the fix."""


@dataclass(frozen=True, slots=True)
class PastedEngine:
    """One readable line. An empty field was not given."""

    name: str
    url: str
    pool: str = ""
    events: str = ""
    replay: str = ""
    speed: float = 1.0
    role: str = "mixed"


@dataclass(frozen=True, slots=True)
class PastedLine:
    """One line of the list."""

    number: int
    """Line number, from 1."""
    text: str
    engine: PastedEngine | None = None
    problems: tuple[str, ...] = field(default=())

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
    return [cell.strip() for cell in row]


def _header(cells: Sequence[str]) -> list[str]:
    names = [_ALIASES.get(cell.lower(), cell.lower()) for cell in cells]
    return names if "url" in names and set(names) <= {*COLUMNS, ""} else []


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
        return ("events", "replay")
    if _NUMBER.fullmatch(cell):
        return ("speed",)
    if cell.lower() in ROLES:
        return ("role",)
    return ("name", "pool")


def _line(number: int, text: str, fields: dict[str, str], problems: list[str]) -> PastedLine:
    url = fields.get("url", "")
    if not url:
        problems.append("No URL; add one such as http://10.0.3.7:8000.")
    name = fields.get("name") or name_of_url(url)
    for what in ("name", "pool"):
        word = name if what == "name" else fields.get("pool", "")
        if word and not _SLUG.fullmatch(word):
            problems.append(f"The {what} “{_shown(word)}” may hold only letters, digits, - and _ (64 at most).")
    speed, trouble = _speed(fields.get("speed", ""))
    problems += trouble
    role = fields.get("role", "mixed").lower()
    if role not in ROLES:
        problems.append(f"The role “{_shown(role)}” is not known; use {', '.join(ROLES)}.")
    pool, events, replay = (fields.get(column, "") for column in ("pool", "events", "replay"))
    engine = PastedEngine(name, url, pool, events, replay, speed, role)
    return PastedLine(number, text, engine if url else None, tuple(problems))


def name_of_url(url: str) -> str:
    """Return a name made of host, port, and rank, for an engine without a given name."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", parts.netloc.rpartition("@")[2]).strip("-")
    return f"{name[:54]}-rank-{parts.fragment}" if parts.fragment else name[:64]


def _speed(text: str) -> tuple[float, list[str]]:
    if not text:
        return 1.0, []
    if not _NUMBER.fullmatch(text) or not 0 < float(text) <= 1000:
        return 1.0, [f"The speed “{_shown(text)}” is not a number above 0 and up to 1,000."]
    return float(text), []


def _without_doubles(lines: Sequence[PastedLine]) -> list[PastedLine]:
    """Add a problem to lines that repeat the URL, or the name in the same pool, of an earlier line."""
    seen: dict[tuple[str, ...], int] = {}
    checked = []
    for line in lines:
        problems = list(line.problems)
        if line.engine is not None:
            url = line.engine.url.rstrip("/").lower()
            for key, what in ((("url", url), "URL"), (("name", line.engine.pool, line.engine.name), "name")):
                first = seen.setdefault(key, line.number)
                if first != line.number:
                    problems.append(f"Line {first} has the same {what}.")
        checked.append(PastedLine(line.number, line.text, line.engine, tuple(problems)))
    return checked


def _shown(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
