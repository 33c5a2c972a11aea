"""The recent plans that proposed a change, with consecutive equal plans in one row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from controlplane.automation.models.plan_record import PlanRecord
from controlplane.fleet.models.pool import Pool
from controlplane.platform.format import moment, sentence
from web.automation.words import MODES, TITLES

READ, SHOWN = 200, 20
"""Number of plans read, and of rows."""


def plan_rows(pools: Sequence[Pool], now: datetime) -> list[dict[str, Any]]:
    """Return the newest plans of these pools; plans that an automation repeats for the same reasons share one row."""
    # The list shows neither, and a plan of a large fleet is long.
    plans = PlanRecord.objects.filter(pool__in=[pool.slug for pool in pools], changes=True).defer("plan", "figures")
    names, rows = {pool.slug: pool.name for pool in pools}, []
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for record in plans.order_by("-at", "-pk")[:READ]:
        row = last.get((record.pool, record.job))
        done = record.outcome.get("carried_out", False)
        kind = record.mode, done, [reason.get("code") for reason in record.reasons]
        if row is not None and row["kind"] == kind:
            row["times"], row["first"] = row["times"] + 1, moment(record.at, now)
            continue
        row = {
            "at": moment(record.at, now),
            "times": 1,
            "kind": kind,
            "pool": names[record.pool],
            "title": TITLES.get(record.job, record.job),
            "mode": MODES.get(record.mode, (record.mode, ""))[0],
            "done": "executed" if done else "not executed",
            "why": " ".join(sentence(reason.get("text", "")) for reason in record.reasons[:3]),
        }
        last[record.pool, record.job] = row
        rows.append(row)
    return rows[:SHOWN]
