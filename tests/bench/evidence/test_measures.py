"""Measurements produce the figures of their chapters: one small case of each kind runs on a generated trace."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from bench.evidence.cells import Cell
from bench.evidence.measure.capacity import defaults
from bench.evidence.measure.routing import end_to_end, knowledge
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    small = Workload(generate_workload("toolagent_like", seed=7, rows=600), max_input=20_480)
    for measure in (defaults, knowledge):
        monkeypatch.setattr(measure, "workload", lambda _trace, *_: small)
    monkeypatch.setattr("bench.evidence.cells.workload", lambda _trace, *_: small)
    yield


def test_default_row_has_the_share_of_each_band() -> None:
    asked = next(default for default in defaults.everything() if default.kind == "load" and default.starvation_limit_s)
    row = defaults.measure_one(asked)
    assert (row["kind"], row["starvation_limit_s"], len(row["bands"])) == ("load", asked.starvation_limit_s, 5)  # type: ignore[arg-type]
    assert 0 <= float(str(row["slo_share"])) <= 1


def test_starvation_limit_reaches_the_policy() -> None:
    cell = Cell(trace="t", placement="least_cost", order="slack", qps=80.0)
    shares = [defaults.measure_one(defaults.Asked("load", cell, bound_s))["ttft_p99_s"] for bound_s in (0.0, 3.0)]
    assert shares[0] != shares[1]


def test_cost_learning_and_age_settings_reach_the_run() -> None:
    asked = knowledge.Asked(kind="cost", order="fifo", qps=24.0, written="flat")
    fixed = knowledge.measure_one(asked)
    fitted = knowledge.measure_one(msgspec.structs.replace(asked, cost="fitted"))
    assert float(str(fitted["slo_share"])) >= float(str(fixed["slo_share"]))
    assert fitted["token_hit_rate"] != fixed["token_hit_rate"]


def test_end_to_end_row_uses_engines_that_decode() -> None:
    row = end_to_end.measure_one(Cell(trace="t", placement="least_cost", qps=8.0, engine_model="colocated"))
    assert float(str(row["e2e_p50_s"])) > float(str(row["ttft_p50_s"]))
