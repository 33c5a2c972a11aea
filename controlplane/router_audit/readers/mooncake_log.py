"""Mooncake's trace format, with Headway's recorded outcomes and the field `engine`.

Source: kvcache-ai/Mooncake, FAST25-release/README.md (timestamp, input_length, output_length, hash_ids). The published
traces name no engine. Routers that write this format add `engine`; docs/audit-router.md lists the fields.
"""

from __future__ import annotations

import msgspec

from controlplane.request_log.recordings.recorded_row import RecordedRow
from controlplane.router_audit.readers.line_fields import address
from planning.router_audit.logged_request import LoggedRequest, OtherLineError, UnusableLineError


class _LoggedRow(RecordedRow, frozen=True):
    engine: str = ""


_decode = msgspec.json.Decoder(_LoggedRow).decode


def mooncake_request(line: bytes) -> LoggedRequest:
    """Return the request of one row."""
    try:
        row = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableLineError(f"{error}; a row needs timestamp, input_length, output_length, and hash_ids") from error
    if row.unread:
        raise OtherLineError("request that was rejected before its prompt was read")
    if row.hash_ids and not -(2**63) <= min(row.hash_ids) <= max(row.hash_ids) < 2**64:
        raise UnusableLineError("a hash id has more than 64 bits")
    return LoggedRequest(
        arrived_s=row.timestamp / 1000,
        engine=address(row.engine),
        prompt_tokens=row.input_length,
        output_tokens=row.output_length,
        cached_tokens=row.cached_tokens,
        ttft_s=row.ttft_s,
        total_s=row.total_s,
        blocks=row.hash_ids,
        block_source="hashes" if row.hash_ids else "",
        session="" if row.session_id is None else str(row.session_id),
        outcome=row.outcome,
    )
