"""The rows of the topology table: registered engines, joined with the gateway's samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.fleet.engine_url import rank_of
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.pool_problems import role_problems
from controlplane.fleet.preflight.lifecycle import failed_engines
from controlplane.platform.format import ago, clock_time, count, iso, percent, zone_name
from gateway.contracts.fleet_sample import TAKING_WORK, EngineSample, FleetSample, PoolSample
from web.fleet.topology.scope import NOT_SERVING, PAGE_ROWS, TopologyScope
from web.fleet.topology.words import (
    SEVERITY,
    STALE_S,
    STATE_PHRASES,
    STATE_WORDS,
    TRUST_WORDS,
    age_words,
    heat_step,
    hit_words,
    load_position,
    load_words,
    owner_words,
)

_COLUMNS = ("pk", "engine_id", "name", "url", "pool_id", "desired_state", "role")
_NOT_REPORTED = "not reported by the gateway"


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One engine: its stored record, and its newest sample (None if there is none)."""

    pk: int
    engine_id: str
    name: str
    url: str
    pool: Pool
    desired_state: str
    sample: EngineSample | None
    role: str = "mixed"

    @property
    def state(self) -> str:
        """One of FleetSample's states."""
        if self.sample is not None:
            return self.sample.state
        return "maintenance" if self.desired_state == "maintenance" else "unknown"


@dataclass(frozen=True, slots=True)
class TopologyRows:
    """One page of the table, and the totals over all pages."""

    entries: list[dict[str, Any]]
    """Lines for regions, pools, engines, and empty pools, in order; `kind` is the type of line."""
    states: Counter[str]
    """States of all visible engines, regardless of the filter."""
    total: int
    """Number of visible engines."""
    matching: int
    """Number of engines that match the filter."""
    first: int
    """Number of the first engine on this page, counted from 1."""
    pages: int
    silent_s: tuple[float, ...] = ()
    """Seconds without a report, of the visible engines whose figures are old."""

    @property
    def last(self) -> int:
        """Number of the last engine on this page."""
        return self.first - 1 + sum(1 for entry in self.entries if entry["kind"] == "engine")


def topology_rows(pools: Sequence[Pool], scope: TopologyScope, sample: FleetSample | None, now: float) -> TopologyRows:
    """Return the page of the table that the scope selects; `now` is in Unix seconds."""
    by_pk = {pool.pk: pool for pool in pools}
    seen = {engine.engine_id: engine for engine in sample.engines} if sample else {}
    stored = Engine.objects.filter(pool__in=list(by_pk)).values_list(*_COLUMNS)
    rows = [
        EngineRow(pk, engine_id, name, url, by_pk[pool_pk], desired, seen.get(engine_id), role)
        for pk, engine_id, name, url, pool_pk, desired, role in stored
    ]
    matching = [row for row in rows if _matches(row, scope)]
    _sort(matching, scope.sort)
    pages = max(1, -(-len(matching) // PAGE_ROWS))
    start = (min(scope.page, pages) - 1) * PAGE_ROWS
    page = matching[start : start + PAGE_ROWS]
    slo_s = {pool.pool_id: pool.ttft_slo_s for pool in sample.pools} if sample else {}
    lines = _engine_lines(page, slo_s, now)
    grouped = scope.sort == "place"
    empty = [pool for pool in pools if not scope.q and not scope.state and pool.slug in (scope.pool or pool.slug,)]
    counts = Counter(row.pool.pk for row in rows)
    empty = [pool for pool in empty if not counts[pool.pk]] if start + PAGE_ROWS >= len(matching) else []
    return TopologyRows(
        entries=_tree(page, lines, rows, empty, sample) if grouped else lines,
        states=Counter(row.state for row in rows),
        total=len(rows),
        matching=len(matching),
        first=start + 1 if page else 0,
        pages=pages,
        silent_s=tuple(age_s for row in rows if row.sample and (age_s := row.sample.report_age_s or 0.0) > STALE_S),
    )


def _matches(row: EngineRow, scope: TopologyScope) -> bool:
    if scope.pool and row.pool.slug != scope.pool:
        return False
    if scope.state == NOT_SERVING:
        if row.state in TAKING_WORK:
            return False
    elif scope.state and row.state != scope.state:
        return False
    if not scope.q:
        return True
    pool = row.pool
    texts = (row.name, row.engine_id, row.url, pool.slug, pool.name, pool.region.slug, pool.region.name)
    return any(scope.q.casefold() in text.casefold() for text in (*texts, pool.served_model))


def _sort(rows: list[EngineRow], sort: str) -> None:
    rows.sort(key=lambda row: (row.pool.region.slug, row.pool.slug, row.name))
    if sort == "state":
        rows.sort(key=lambda row: SEVERITY.index(row.state))
    elif sort == "load":
        rows.sort(key=lambda row: -row.sample.in_flight_s if row.sample else 1.0)
    elif sort == "hit":
        rows.sort(key=lambda row: _hit(row.sample))
    elif sort == "age":
        rows.sort(key=lambda row: -(row.sample.report_age_s or 0.0) if row.sample else 1.0)


def _hit(sample: EngineSample | None) -> float:
    """Return the sort key by hit rate; engines without a rate are last."""
    return sample.cached_tokens_total / sample.prompt_tokens_total if sample and sample.prompt_tokens_total else 2.0


def _engine_lines(rows: Sequence[EngineRow], slo_s: Mapping[str, float], now: float) -> list[dict[str, Any]]:
    waiting = [row.pk for row in rows if row.desired_state == "maintenance"]
    failed = failed_engines(waiting) if waiting else {}
    lines = []
    for row in rows:
        failure = failed[row.pk].failure if row.pk in failed else None
        trouble = f"Preflight: {failure.sentence}" if failure else ""
        lines.append(engine_line(row, slo_s.get(row.pool.slug, 1.0), now, trouble))
    return lines


def engine_line(row: EngineRow, slo_s: float, now: float, trouble: str = "") -> dict[str, Any]:
    """Return all texts of an engine's line; the live view sends the same ones."""
    sample = row.sample
    position = load_position(sample.in_flight_s, slo_s) if sample else 0
    trust = sample.index_trust if sample else ""
    return {
        "kind": "engine",
        "id": row.engine_id,
        "name": row.name,
        "rank": rank_of(row.url),
        "role": row.role,
        "pool": row.pool,
        "state": row.state,
        "word": STATE_WORDS[row.state],
        "phrase": STATE_PHRASES[row.state],
        "reason": trouble or (sample.reason if sample else _NOT_REPORTED),
        "since": ago(now - sample.since) if sample else "",
        "since_at": iso(sample.since) if sample else "",
        "since_clock": f"{clock_time(sample.since)} {zone_name()}" if sample else "",
        "incarnation": str(sample.incarnation) if sample else "",
        "trust": trust,
        "trust_word": TRUST_WORDS.get(trust, ""),
        "trust_reason": sample.index_trust_reason if sample else "",
        "load": load_words(sample),
        "position": position,
        "heat": heat_step(position),
        "work": f"{sample.running}, {sample.bound}" if sample else "",
        "hit": hit_words(sample),
        "age": age_words(sample.report_age_s) if sample else "",
        "stale": "1" if sample and (sample.report_age_s or 0.0) > STALE_S else "",
    }


def _tree(
    page: Sequence[EngineRow],
    lines: Sequence[dict[str, Any]],
    rows: Iterable[EngineRow],
    empty: Sequence[Pool],
    sample: FleetSample | None,
) -> list[dict[str, Any]]:
    """Insert the lines of regions and pools before those of their engines."""
    states: dict[int, Counter[str]] = {}
    roles: dict[int, Counter[str]] = {}
    for row in rows:
        states.setdefault(row.pool.pk, Counter())[row.state] += 1
        roles.setdefault(row.pool.pk, Counter())[row.role] += 1
    live = {pool.pool_id: pool for pool in sample.pools} if sample else {}
    placed: list[tuple[Pool, dict[str, Any] | None]] = [(row.pool, line) for row, line in zip(page, lines, strict=True)]
    placed += [(pool, None) for pool in empty]
    placed.sort(key=lambda item: (item[0].region.slug, item[0].slug))
    tree: list[dict[str, Any]] = []
    before: Pool | None = None
    for pool, line in placed:
        if before is None or before.region_id != pool.region_id:
            tree.append({"kind": "region", "region": pool.region})
        if before is None or before.pk != pool.pk:
            its_states, its_roles = states.get(pool.pk, Counter()), roles.get(pool.pk, Counter())
            tree.append(_pool_line(pool, its_states, its_roles, live.get(pool.slug)))
        tree.append(line or {"kind": "empty", "pool": pool})
        before = pool
    return tree


def _pool_line(pool: Pool, states: Counter[str], roles: Counter[str], live: PoolSample | None) -> dict[str, Any]:
    others = role_problems(roles)
    others += [f"{states[state]} {STATE_PHRASES[state]}" for state in SEVERITY[:-1] if states[state]]
    facts = [pool.served_model, count(states.total(), "engine")]
    if roles["prefill"] or roles["decode"]:
        facts.append(", ".join(f"{roles[role]} {role}" for role in ("prefill", "decode", "mixed") if roles[role]))
    if pool.key_source == "exact":
        facts.append(f"blocks of {pool.block_tokens} tokens")
    if live is not None:
        if live.approximate_share:
            facts.append(f"block keys approximate for {percent(live.approximate_share)} of prompts (images, audio)")
        facts.append(f"policy v{live.policy_version}")
        facts += [f"queue owner {owner}" for owner in owner_words(live)]
        others += [f"{role.gateway} decides alone" for role in live.roles if role.decides_alone]
    return {"kind": "pool", "pool": pool, "facts": " · ".join(facts), "others": ", ".join(others)}
