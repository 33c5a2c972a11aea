"""Messages between gateway and KV connector in `kv_transfer_params` of a request and its answer.

The connector's report on a load instruction is only for the gateway, and is removed from the client's answer.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gateway.requests.formats.handoff_bodies import TRANSFER
from kvstore.connector.engine_params import FIELD, KvOutcome, LoadInstruction, outcome_in

TRANSFER_MARK = b'"' + TRANSFER.encode() + b'"'
"""Every answer to which a connector added a report contains this."""
_OBJECT, _NULL = b"{", msgspec.Raw(b"null")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def with_order(body: bytes, order: LoadInstruction) -> bytes:
    """Return a request's body, a non-empty object without this field, with the instruction inserted at its start.

    The body is not decoded, so a long prompt keeps its bytes.
    """
    begin = body.index(_OBJECT) + 1
    # A memoryview, because a slice of bytes would copy the prompt once more.
    return b"".join((b"{", TRANSFER_MARK, b":", msgspec.json.encode({FIELD: order}), b",", memoryview(body)[begin:]))


def take_outcome(answer: bytes) -> tuple[bytes, KvOutcome | None]:
    """Return (answer or event data without the connector's report, that report). None: there is no report.

    A malformed report is removed too, and counts as none. Reports of other connectors are kept.
    """
    if TRANSFER_MARK not in answer:
        return answer, None
    try:
        fields = _fields(answer)
        params = fields.get(TRANSFER)
        said = _fields(params) if params is not None and bytes(params).lstrip()[:1] == _OBJECT else {}
    except _BROKEN:
        return answer, None
    if FIELD not in said:
        return answer, None
    outcome, left = _outcome(said), _without(said)
    return msgspec.json.encode({**fields, TRANSFER: left or _NULL}), outcome


class StreamedReport:
    """Takes the connector's report from the events of one answer. Mutable: `outcome`, the last report.

    The stream refers to this object and not to the answer: a cycle would keep the prompt until a garbage collection.
    """

    outcome: KvOutcome | None = None

    def take(self, data: bytes) -> bytes:
        """Return the event's data without the report."""
        left, outcome = take_outcome(data)
        self.outcome = outcome or self.outcome
        return left


def take_from_params(params: msgspec.Raw) -> tuple[msgspec.Raw, KvOutcome | None]:
    """Do the same with the `kv_transfer_params` object of a prefill leg's answer. The result is empty if nothing
    remains.
    """
    try:
        said = _fields(params)
    except _BROKEN:
        return params, None
    if FIELD not in said:
        return params, None
    return msgspec.Raw(msgspec.json.encode(_without(said))), _outcome(said)


def _without(said: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    return {name: value for name, value in said.items() if name != FIELD}


def _outcome(said: Mapping[str, msgspec.Raw]) -> KvOutcome | None:
    try:
        return outcome_in({FIELD: said[FIELD]})
    except ValueError:
        return None
