"""Runs of a what-if: one task per policy and seed, all with the same requests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from controlplane.request_log.recordings.recorded_row import RecordedRow
from controlplane.trials.whatif.conditions import Conditions
from controlplane.trials.whatif.engine_candidate import EngineCandidate
from routing.policy.policy_document import RoutingPolicy
from routing.registry import build_placement
from simulator.baselines.registry import PLACEMENTS
from simulator.kv_nodes.kv_nodes_spec import KvNodesSpec
from simulator.runs.run_task import RunTask
from simulator.runs.simulation_run import RunSpec
from simulator.workloads.arrival_pattern import ArrivalPattern
from simulator.workloads.trace import BLOCK_TOKENS

BASE, DRAFT = "base", "draft"
TRIAL_REQUESTS = 3000
"""Number of requests, in longer recordings, that decide which simulated engine is closest to the recorded outcome."""
_JITTER_GAPS = 1.0
"""Maximum shift of a request in seeds after the first, in mean gaps between requests."""


@dataclass(frozen=True, slots=True)
class WhatIfPlan:
    """All inputs of the runs, read once."""

    recording: Path
    rows: list[RecordedRow]
    """The simulated rows, ordered by time."""
    conditions: Conditions
    base: RoutingPolicy
    draft: RoutingPolicy
    checked_version: int
    """Number of the version on `checked_side`."""
    engines: int
    engine_candidates: tuple[EngineCandidate, ...]
    """Engines to simulate. If there are several, the one closest to the recorded outcome is used."""
    block_tokens: int = BLOCK_TOKENS
    """The pool's block size."""
    unread: tuple[RecordedRow, ...] = ()
    """Rows of the same span without a known prompt, which cannot be simulated."""
    kv_nodes: KvNodesSpec | None = None
    """Node managers to simulate; None: the pool's engines use no node."""

    @property
    def engine(self) -> EngineCandidate:
        """The simulated engine."""
        return self.engine_candidates[0]

    def with_engine(self, number: int) -> WhatIfPlan:
        """Return the plan with only one of its candidate engines."""
        return replace(self, engine_candidates=(self.engine_candidates[number],))

    @property
    def checked_side(self) -> str:
        """Return the side that may have decided the recorded requests: the base, or the draft if a baseline replaces
        the base's placement.
        """
        return DRAFT if self.conditions.base_placement else BASE

    @property
    def trial(self) -> WhatIfPlan:
        """Return the plan with the first TRIAL_REQUESTS requests, to choose the closest engine."""
        return replace(self, rows=self.rows[:TRIAL_REQUESTS])

    @property
    def coarse_starts(self) -> bool:
        """Return whether a policy uses prompts' first blocks, and the rows' blocks are coarser than the pool's."""
        rules = [build_placement(item.placement, PLACEMENTS) for item in (self.base, self.draft)]
        by_start = any(hasattr(rule, "key_blocks") for rule in rules)
        if not by_start or self.block_tokens == BLOCK_TOKENS:
            return False
        return self.block_tokens > BLOCK_TOKENS or not any(row.head_ids for row in self.rows)

    @property
    def warmup(self) -> int:
        """Return the number of first rows that are not counted."""
        return min(int(len(self.rows) * self.conditions.warmup_share), len(self.rows) - 1)

    @property
    def counted(self) -> list[RecordedRow]:
        """Return the rows from which the figures are computed."""
        return self.rows[self.warmup :]

    @property
    def counted_unread(self) -> int:
        """Return the number of unread rows since the first counted one."""
        since = self.rows[self.warmup].timestamp
        return sum(row.timestamp >= since for row in self.unread)

    @property
    def mean_gap_s(self) -> float:
        """Return the mean time between two requests, in seconds."""
        return (self.rows[-1].timestamp - self.rows[0].timestamp) / 1000 / max(1, len(self.rows) - 1)

    def names(self) -> list[tuple[str, int]]:
        """Return side and seed of every run, grouped by seed, so that finished seeds can be compared early."""
        return [(side, seed) for seed in range(self.conditions.seeds) for side in (BASE, DRAFT)]

    def task(self, side: str, seed: int) -> RunTask:
        """Return one run. On both sides, equal seeds shift the requests equally."""
        return RunTask(
            trace=str(self.recording),
            requests=len(self.rows),
            max_input=None,
            goodput=self.conditions.goodput,
            spec=RunSpec(
                policy=self.base if side == BASE else self.draft,
                engines=self.engines,
                arrivals=ArrivalPattern(jitter_s=_JITTER_GAPS * self.mean_gap_s if seed else 0.0),
                warmup=self.warmup,
                engine_model=self.engine.engine_model,
                profile=self.engine.profile,
                counted_slo_s=self.base.ttft_slo_s,
                seed=seed,
                kv_nodes=self.kv_nodes,
                keep_quantiles=True,
            ),
        )
