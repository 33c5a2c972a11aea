"""Rows of the index made from records, and written many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection

from controlplane.request_log.models.decision_index import DecisionIndex
from gateway.contracts.stored_decision import StoredDecision

_COLUMNS = (
    "decision_id", "at_ms", "pool", "engine", "tenant", "session", "reason", "policy_version", "arm", "outcome",
    "error", "late", "ttft_ms", "queued_ms", "prompt_tokens", "predicted_tokens", "reported_tokens", "mismatch",
    "regret_ms", "regret_cause", "share", "segment", "place",
)  # fmt: skip
_MOST = 2**31 - 1


def row_of(stored: StoredDecision, segment: int, place: int) -> tuple[Any, ...]:
    """Return the values of a row, in the order of _COLUMNS."""
    decision, regret = stored.decision, stored.regret
    return (
        decision.decision_id[:64],
        int(stored.arrived_at * 1000),
        decision.pool_id[:64],
        decision.engine_id[:64],
        stored.tenant_id[:64],
        stored.session[:16],
        decision.reason[:32],
        decision.policy_version,
        decision.arm[:16],
        stored.outcome[:16],
        stored.error[:64],
        stored.late,
        _ms(stored.first_token_after_s),
        _ms(stored.granted_after_s),
        min(decision.prompt_tokens, _MOST),
        min(stored.believed_tokens, _MOST),
        None if stored.cached_tokens is None else min(stored.cached_tokens, _MOST),
        stored.mismatch[:16],
        None if regret is None else _ms(regret.seconds),
        "" if regret is None else regret.cause,
        stored.share,
        segment,
        place,
    )


def insert_rows(rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert the rows; one whose decision is there already is left out.

    Plain SQL: making model instances would cost several times what the database takes.
    """
    meta, quote = DecisionIndex._meta, connection.ops.quote_name
    names = ", ".join(quote(meta.get_field(name).column) for name in _COLUMNS)
    holes = ", ".join(["%s"] * len(_COLUMNS))
    unique = quote("decision_id")
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO {quote(meta.db_table)} ({names}) VALUES ({holes}) ON CONFLICT ({unique}) DO NOTHING",  # noqa: S608
            list(rows),
        )


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else min(round(seconds * 1000), _MOST)
