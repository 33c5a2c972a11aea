"""One request of a recording: a row in Mooncake's format, with its outcome in fields that other tools ignore."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec

from gateway.contracts.traffic_row import BLOCK_TOKENS, HEAD_BLOCKS, TrafficRow
from simulator.workloads.trace import TraceError, TraceRow, iterate_lines

_ID_BITS = 53
"""Number of bits in hash ids. Tools that read numbers as doubles can still distinguish them."""
REJECTED = "rejected"
_MASK_64 = (1 << 64) - 1


class RecordedRow(TraceRow, frozen=True, omit_defaults=True):
    """A request as it arrived, and its outcome if known. Times are in seconds since its arrival."""

    outcome: str = ""
    late: bool = False
    ttft_s: float | None = None
    total_s: float | None = None
    cached_tokens: int | None = None
    engines: int = 0
    policy_version: int = 0


class Resalting:
    """Renames all ids of one recording, with a salt that is discarded with this object.

    Equal ids stay equal within the recording. They cannot be linked to another recording, the fleet's keys, a session,
    or a tenant.
    """

    def __init__(self, salt: bytes) -> None:
        self._salt = salt

    def recorded(self, row: TrafficRow, begin: float) -> RecordedRow:
        """Return a row of the continuous recording, with times relative to `begin` (unix seconds)."""
        return RecordedRow(
            timestamp=round(max(0.0, row.arrived_at - begin) * 1000, 3),
            input_length=max(1, row.prompt_tokens),
            output_length=row.output_tokens or 0,
            hash_ids=self._blocks(row.blocks),
            session_id=self._name("session", row.session) or None,
            tenant=self._name("tenant", row.tenant),
            priority=row.priority,
            outcome=row.outcome,
            late=row.late,
            ttft_s=_rounded(row.first_token_after_s),
            total_s=_rounded(row.finished_after_s),
            cached_tokens=row.cached_tokens,
            engines=row.engines,
            policy_version=row.policy_version,
            head_ids=self._blocks(row.head),
            unread=row.outcome == REJECTED and not row.prompt_tokens,
        )

    def uploaded(self, row: RecordedRow) -> RecordedRow:
        """Return an uploaded row. Names of sessions and tenants become digests, and hints are omitted."""
        session = "" if row.session_id is None else str(row.session_id)
        return msgspec.structs.replace(
            row,
            hash_ids=self._blocks(row.hash_ids[: -(-row.input_length // BLOCK_TOKENS)]),
            head_ids=self._blocks(row.head_ids[:HEAD_BLOCKS]),
            session_id=self._name("session", session) or None,
            tenant=self._name("tenant", row.tenant),
            cache_hint=None,
        )

    def _blocks(self, blocks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([self._block(block) for block in blocks])

    def _block(self, block: int) -> int:
        digest = blake2b((block & _MASK_64).to_bytes(8, "little"), digest_size=8, key=self._salt).digest()
        return int.from_bytes(digest, "big") >> (64 - _ID_BITS)

    def _name(self, kind: str, name: str) -> str:
        if not name:
            return ""
        return blake2b(name.encode(errors="replace"), digest_size=6, key=self._salt, person=kind.encode()).hexdigest()


def read_recorded(path: Path) -> Iterator[RecordedRow]:
    """Yield the rows of a recording, ordered by time. Raises simulator.workloads.trace.TraceError."""
    for line_number, line in iterate_lines(path):
        try:
            yield decode_recorded(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TraceError(f"{line_number}: {error}") from error


decode_recorded = msgspec.json.Decoder(RecordedRow).decode


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
