"""CSV with a header: any router's log, exported by a query. docs/audit-router.md lists the columns."""

from __future__ import annotations

import csv

from controlplane.router_audit.readers.line_fields import address, hash_blocks, number, prompt_blocks, unix_s, whole
from planning.router_audit.logged_request import LoggedRequest, OtherLineError, UnusableLineError

COLUMNS = (
    "request_id", "time", "engine", "prompt_tokens", "output_tokens", "cached_tokens", "ttft", "total", "session",
    "outcome", "block_hashes", "block_tokens", "prompt",
)  # fmt: skip


class CsvLog:
    """Reads the lines of one file in order. Mutable: its columns, from the first line."""

    def __init__(self) -> None:
        self._columns: list[str] = []

    def __call__(self, line: bytes) -> LoggedRequest:
        """Return the request of one line."""
        cells = next(csv.reader([line.decode("utf-8-sig", errors="replace").rstrip("\r\n")]), [])
        if not self._columns:
            columns = [cell.strip().lower() for cell in cells]
            if "time" not in columns:
                raise UnusableLineError(f"no header with a column 'time'; known columns are {', '.join(COLUMNS)}")
            self._columns = columns
            raise OtherLineError("header")
        if len(cells) != len(self._columns):
            raise UnusableLineError(f"{len(cells)} cells instead of {len(self._columns)}; quote cells with commas")
        return _request(dict(zip(self._columns, cells, strict=True)))


def _request(cells: dict[str, str]) -> LoggedRequest:
    tokens, source = whole(cells.get("prompt_tokens")), ""
    blocks: tuple[int, ...] = ()
    if hashes := cells.get("block_hashes", "").split():
        blocks, source = hash_blocks(_numbers(hashes), whole(cells.get("block_tokens")), tokens), "hashes"
    elif prompt := cells.get("prompt", ""):
        blocks, counted = prompt_blocks(prompt)
        tokens, source = tokens or counted, "prompt"
    return LoggedRequest(
        request_id=cells.get("request_id", ""),
        arrived_s=unix_s(cells["time"]),
        engine=address(cells.get("engine")),
        prompt_tokens=tokens,
        output_tokens=whole(cells.get("output_tokens")),
        cached_tokens=whole(cells.get("cached_tokens")),
        ttft_s=number(cells.get("ttft")),
        total_s=number(cells.get("total")),
        blocks=blocks,
        block_source=source,
        session=cells.get("session", ""),
        outcome=cells.get("outcome", ""),
    )


def _numbers(words: list[str]) -> list[int]:
    """Return block hashes written in decimal, or in hexadecimal after 0x."""
    try:
        return [int(word, 0) for word in words]
    except ValueError as error:
        raise UnusableLineError("block_hashes are no numbers; separate them with spaces") from error
