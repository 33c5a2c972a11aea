"""Reports learned engine costs to the control plane, for its next snapshot."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from gateway.bus.bus import Bus
from gateway.contracts.wire import MIB, WireForm
from routing.cost.cost_fit import LEAST_SPEED, MAX_ENGINES, MOST_SPEED, FittedCost
from routing.cost.cost_observer import MAX_KINDS

if TYPE_CHECKING:
    from gateway.base.metric_families import CounterFamily
    from gateway.pools.pool.live_pool import LivePool

TOPIC = "cost_fits"
"""Stream topic; values are encoded CostReports."""
MAX_POOLS = 10_000


class CostReport(msgspec.Struct, frozen=True):
    """One gateway's learned costs: pool id → kind of engine → cost."""

    pools: dict[str, dict[str, FittedCost]]


class CostReports:
    """Reports changes. Mutable: the last reported counts, and the sample counts added to metrics."""

    def __init__(self, bus: Bus, pools: Callable[[], Iterable[LivePool]], samples: CounterFamily) -> None:
        self._bus = bus
        self._pools = pools
        self._samples = samples
        self._counted: dict[tuple[str, str], int] = {}
        self._reported: dict[str, int] = {}

    def report(self) -> None:
        """Report the pools that have learned since the last report. Nothing is sent if there are none."""
        learned: dict[str, dict[str, FittedCost]] = {}
        for pool in self._pools():
            pool_id = pool.entry.pool_id
            self._count(pool_id, pool.costs.samples)
            fitted = pool.costs.fitted()
            samples = sum(item.samples for item in fitted.values())
            if fitted and self._reported.get(pool_id) != samples:
                self._reported[pool_id] = samples
                learned[pool_id] = fitted
        if learned:
            self._bus.append(TOPIC, _report.encode(CostReport(learned)))

    def _count(self, pool_id: str, samples: dict[str, int]) -> None:
        for result, count in samples.items():
            new = count - self._counted.get((pool_id, result), 0)
            # A pool that was removed and created again counts from 0.
            if new:
                self._samples.inc(pool_id, result, amount=new if new > 0 else count)
            self._counted[pool_id, result] = count


def _problem(report: CostReport) -> str:
    if len(report.pools) > MAX_POOLS or any(len(kinds) > MAX_KINDS for kinds in report.pools.values()):
        return "too many pools or kinds"
    for pool_id, kinds in report.pools.items():
        for kind, fitted in kinds.items():
            if problem := fitted_problem(fitted):
                return f"{pool_id}.{kind}: {problem}"
    return ""


def fitted_problem(fitted: FittedCost) -> str:
    """Return the problem of a learned cost with its path, empty if it is valid."""
    costs = [(f"prefill.{name}", getattr(fitted.prefill, name)) for name in fitted.prefill.__struct_fields__]
    if fitted.decode is not None:
        costs += [(f"decode.{name}", getattr(fitted.decode, name)) for name in fitted.decode.__struct_fields__]
    costs += [("error", fitted.error), ("policy_error", fitted.policy_error)]
    for name, value in costs:
        if not math.isfinite(value) or not 0 <= value <= 60:
            return f"{name} cannot be {value}"
    if fitted.samples < 0 or len(fitted.speeds) > MAX_ENGINES:
        return "samples or speeds are out of range"
    for engine_id, speed in fitted.speeds.items():
        if not LEAST_SPEED <= speed <= MOST_SPEED:
            return f"speeds.{engine_id} cannot be {speed}"
    return ""


_report = WireForm(CostReport, "a cost report", limit=64 * MIB, problem=_problem)
decode_cost_report = _report.decode
