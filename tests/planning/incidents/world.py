"""A small fleet that makes readings: pools with tenants and engines, Poisson traffic, and faults to plant."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from planning.incidents.episodes import EpisodeNews, IncidentMemory, advance
from planning.incidents.signs import ALL, Change, EngineSigns, FleetSigns, Outage, Outcomes, PoolSigns, SignLog, Tables

START = 1_800_000_000.0
CLASSES = {"acme": "chat"}
"""SLO class by tenant; others have none."""


@dataclass
class Pool:
    name: str
    rate: float
    engines: int
    late: float = 0.02
    failed: float = 0.0
    rejected: float = 0.0
    tenants: dict[str, float] = field(default_factory=lambda: {"acme": 5.0, "lumen": 3.0, "orbita": 2.0})
    waiting: int = 3
    tail: float = 0.0
    """Standard deviation of the logarithm of prompt lengths, whose hits are then all or nothing; 0: alike."""
    writes_long: str = ""
    """Tenant whose prompts have 12,000 tokens and no hits; empty: none."""
    prefixes: dict[str, float] = field(default_factory=lambda: {"aa": 0.10, "bb": 0.08})
    counts: dict[str, dict[str, list[int]]] = field(default_factory=lambda: {ALL: {"": [0, 0, 0, 0]}})

    def end(self, tenant: str, length: str, column: int) -> None:
        rows = {
            ALL: "",
            "tenants": tenant,
            "lengths": length,
            "keys": f"key-{tenant}",
            "classes": CLASSES.get(tenant, ""),
        }
        for dimension, row in rows.items():
            self.counts.setdefault(dimension, {}).setdefault(row, [0, 0, 0, 0])[column] += 1

    def tables(self) -> Tables:
        frozen: Tables = {}
        for dimension, rows in self.counts.items():
            frozen[dimension] = {row: (counts[0], counts[1], counts[2], counts[3]) for row, counts in rows.items()}
        return frozen


class World:
    """Mutable: the time, the pools, and the engines. `step` advances by a second, `run` also detects incidents."""

    def __init__(self, seed: int = 1, pools: int = 1, rate: float = 10.0, engines: int = 6) -> None:
        self.rng = random.Random(seed)
        self.now = START
        self.pools = {f"pool-{n}": Pool(f"pool-{n}", rate, engines) for n in range(pools)}
        self.engines = {
            f"{pool}-e{n}": EngineSigns(
                engine_id=f"{pool}-e{n}", name=f"e-{n:02}", pool_id=pool, removed_blocks=1, block_tokens=16
            )
            for pool, facts in self.pools.items()
            for n in range(facts.engines)
        }
        self.away_s, self.away_per_s, self.usual_away = 0.0, 0.0, 0.002
        self.hit = dict.fromkeys(self.pools, 0.7)
        self.removed_per_s = dict.fromkeys(self.pools, 49.0)
        self.stopped: set[str] = set()
        self.indexed = True
        self.outages: tuple[Outage, ...] = ()
        self.changes: list[Change] = []
        self.log, self.memory = SignLog(), IncidentMemory()
        self.news: list[EpisodeNews] = []
        self.on_step: Callable[[World], None] = lambda _world: None

    def pool(self, number: int = 0) -> Pool:
        return self.pools[f"pool-{number}"]

    def engine(self, number: int = 0, pool: int = 0, **changes: object) -> None:
        key = f"pool-{pool}-e{number}"
        if "state" in changes:
            changes["since"] = self.now
        self.engines[key] = msgspec.structs.replace(self.engines[key], **changes)

    def change(self, kind: str, subject: str, text: str = "", pool: str = "pool-0") -> None:
        self.changes.append(Change(self.now, kind, pool, subject, text))

    def step(self) -> None:
        self.now += 1.0
        self.on_step(self)
        self.away_s += self.away_per_s + (0.4 if self.rng.random() < self.usual_away else 0.0)
        for pool in self.pools.values():
            self._traffic(pool)
        signs = {
            name: PoolSigns(pool_id=name, name=name, tables=pool.tables(), waiting=pool.waiting, prefixes=pool.prefixes)
            for name, pool in self.pools.items()
        }
        self.log.add(
            FleetSigns(at=self.now, pools=signs, engines=dict(self.engines), away_s=self.away_s, outages=self.outages)
        )

    def run(self, seconds: float, every: int = 2) -> list[EpisodeNews]:
        """Return the news of the next seconds."""
        news: list[EpisodeNews] = []
        for number in range(int(seconds)):
            self.step()
            if number % every == 0:
                self.memory, matches = advance(self.memory, self.log, self.changes)
                news += matches
        self.news += news
        return news

    def _traffic(self, pool: Pool) -> None:
        rng, tenants = self.rng, list(pool.tenants)
        rate = pool.rate * sum(pool.tenants.values()) / 10.0
        serving = [item for item in self.engines.values() if item.pool_id == pool.name and item.state != "lost"]
        for _ in range(poisson(rng, rate)):
            tenant = rng.choices(tenants, list(pool.tenants.values()))[0]
            length = rng.choice(("0", "1024", "4096"))
            drawn = rng.random()
            column = 3 if drawn < pool.rejected else 2 if drawn < pool.rejected + pool.failed else 0
            if column == 0 and rng.random() < pool.late:
                column = 1
            pool.end(tenant, length, column)
            engine = rng.choice(serving) if serving else None
            if engine is None or engine.engine_id in self.stopped:
                continue
            prompt, cached = rng.randrange(200, 4_000), self.hit[pool.name] * rng.uniform(0.8, 1.0)
            if pool.tail:
                prompt = min(120_000, round(rng.lognormvariate(7.0, pool.tail)))
                cached = 0.95 if rng.random() < self.hit[pool.name] else 0.0
            if tenant == pool.writes_long:
                prompt, cached = 12_000, 0.0
            now = self.engines[engine.engine_id]
            self.engines[engine.engine_id] = msgspec.structs.replace(
                now,
                progress=now.progress + 20,
                running=3,
                slowness=now.slowness if now.slowness and now.slowness > 1.3 else rng.uniform(0.8, 1.3),
                slowness_samples=20,
                in_flight_s=now.in_flight_s if now.in_flight_s > 5 else rng.uniform(0.1, 1.2),
                dispatched_tokens=now.dispatched_tokens + prompt,
                dispatched_hits=now.dispatched_hits + (round(prompt * cached) if self.indexed else 0),
                prompt_tokens=now.prompt_tokens + prompt,
                cached_tokens=now.cached_tokens + round(prompt * cached),
                removed_blocks=now.removed_blocks and now.removed_blocks + round(self.removed_per_s[pool.name]),
            )


def poisson(rng: random.Random, mean: float) -> int:
    """Return a Poisson number (Knuth)."""
    limit, number, product = math.exp(-mean), 0, rng.random()
    while product > limit:
        number += 1
        product *= rng.random()
    return number


def totals(tables: Tables) -> Outcomes:
    """Return the outcomes of all requests."""
    return tables[ALL][""]
