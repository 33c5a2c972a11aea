"""Check the history of a soak against its invariants, which hold for all kills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bench.installation.soak_run.engine_service import EngineService
from bench.installation.soak_run.kills import Kill
from bench.live.client_history import Asked

_NOTICED_S = 5.0
"""A kill, or the process's return, explains a request that breaks within this time."""
DOUBLES = {
    "engines registered twice": "select object_id from controlplane_auditevent where verb = 'engine.register'"
    " group by object_id having count(*) > 1",
    "engines deleted twice": "select object_id from controlplane_auditevent where verb = 'engine.delete'"
    " group by object_id having count(*) > 1",
    "seconds rolled up twice": 'select seconds, "index", pool from controlplane_rollup'
    ' group by seconds, "index", pool having count(*) > 1',
}
"""Queries for effects that happened twice, by name."""
ORDERS = (
    "select o.key, o.kind, o.state, o.says from controlplane_engineaction o"
    " join controlplane_pool p on p.id = o.pool_id where p.slug = 'hooked'"
)
ENGINES = (
    "select e.engine_id from controlplane_engine e join controlplane_pool p on p.id = e.pool_id where p.slug = 'hooked'"
)


def wrong_requests(asked: Sequence[Asked], kills: Sequence[Kill]) -> list[str]:
    """Return the violations in the clients' history: lost requests, and broken answers not explained by any kill."""
    wrong = [f"request {item.number} never ended" for item in asked if item.ended_s is None]
    wrong += [
        f"request {item.number} was lost: {item.status} {item.why[:160]}" for item in asked if item.fate == "lost"
    ]
    for item in asked:
        if item.fate == "broken_off" and not _explained(item, kills):
            wrong.append(f"request {item.number} broke off and nothing was killed: {item.why[:160]}")
    return wrong


def _explained(asked: Asked, kills: Sequence[Kill]) -> bool:
    ended_s = asked.ended_s if asked.ended_s is not None else float("inf")
    return any(
        kill.name.startswith(("gateway", "engine")) and asked.sent_s - _NOTICED_S <= kill.at_s <= ended_s
        for kill in kills
    )


def wrong_effects(service: EngineService, target: int, rows: Mapping[str, Sequence[tuple[Any, ...]]]) -> list[str]:
    """Return the violations in the effects of the jobs.

    `rows` are the results of ORDERS, ENGINES, and DOUBLES by name.
    """
    wrong = [f"{name}: {list(doubles)[:3]}" for name, doubles in rows.items() if name in DOUBLES and doubles]
    orders = {key: (kind, state) for key, kind, state, _ in rows["orders"]}
    applied = Counter([*service.started, *service.stopped])
    wrong += [f"effect {key} belongs to no order" for key in applied if key not in orders]
    for key, (kind, state) in orders.items():
        done = service.started if kind == "start" else service.stopped
        if state == "done" and key not in done:
            wrong.append(f"order {key} says that it {kind}s and had no effect")
        if state not in ("done", "cancelled"):
            wrong.append(
                f"order {key} ({kind}) is {state} at the end: {next(row[3] for row in rows['orders'] if row[0] == key)}"
            )
        if state == "cancelled" and key in done:
            wrong.append(f"order {key} was taken back and had an effect")
    registered = {name for (name,) in rows["engines"]}
    if registered != service.alive():
        wrong.append(f"{sorted(registered ^ service.alive())} are registered or run, not both")
    if len(registered) != target:
        wrong.append(f"{len(registered)} engines at the end, {target} were wanted")
    return wrong
