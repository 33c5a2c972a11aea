"""A pool with a live version, drafts, and a recording of its traffic."""

from __future__ import annotations

import secrets
from typing import Any

from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft, publish_version
from controlplane.request_log.models.recording import Origin, Recording
from controlplane.request_log.recordings.kept_traces import recording_store, written
from controlplane.request_log.recordings.recorded_row import RecordedRow
from controlplane.request_log.recordings.statistics import plain
from simulator.workloads.conversation_like import generate

ACTOR = program("test")


def recorded(count: int = 120, **fields: Any) -> list[RecordedRow]:
    """Return generated conversations with generated results."""
    known = {"outcome": "completed", "ttft_s": 0.8, "total_s": 3.0, "cached_tokens": 512, "engines": 3, **fields}
    return [
        RecordedRow(
            timestamp=row.timestamp, input_length=min(row.input_length, 16_384),
            output_length=min(row.output_length, 40), hash_ids=row.hash_ids[:32], session_id=row.session_id, **known,
        )
        for row in generate(count, 3)
    ]  # fmt: skip


def keep(pool: Pool, rows: list[RecordedRow], name: str = "a quarter of an hour") -> Recording:
    """Store the rows as a recording of the pool."""
    trace = written(rows)
    recording = Recording.objects.create(
        key=secrets.token_hex(8), name=name, pool=pool, origin=Origin.UPLOAD, requests=trace.rows,
        file_bytes=len(trace.packed), statistics=plain(trace.statistics),
    )  # fmt: skip
    recording_store().keep(recording, trace)
    return recording


def live_and_draft(pool: Pool) -> tuple[PolicyVersion, PolicyVersion]:
    """Publish round-robin as v1 and draft least cost as v2."""
    live = draft(pool.policy, {"placement": {"name": "round_robin"}}, actor=ACTOR, message="first")
    publish_version(live, instead_of=None, actor=ACTOR)
    pool.policy.refresh_from_db()
    better = draft(pool.policy, {"placement": {"name": "least_cost"}}, actor=ACTOR, message="second")
    return live, better
