"""Verdicts on sessions follow their definitions. A small case of each measurement runs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bench.evidence.measure.sessions import (
    session_agents,
    session_cases,
    session_headlines,
    session_limits,
    session_loads,
    session_priorities,
)
from bench.evidence.verdicts import advisories, session_figures, symphony

MEASURES = (session_agents, session_headlines, session_limits, session_loads, session_priorities)


@pytest.mark.parametrize("measure", MEASURES, ids=lambda item: item.__name__.rpartition(".")[2])
def test_small_case_has_every_figure_of_every_seed(measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(spec: Any) -> Any:
        return run_sessions(msgspec.structs.replace(spec, users=12, measured_s=20.0, files=1))

    run_sessions = session_cases.run_sessions
    monkeypatch.setattr(session_cases, "run_sessions", short)
    case = measure.asked()[-1]
    row = session_cases.run_case(case)
    assert (row["system"], row["users"], row["options"]) == (case.system, case.users, case.options)
    assert all(len(row[name]) == len(session_cases.SEEDS) for name in case.figures)


def test_no_case_is_requested_twice() -> None:
    for measure in MEASURES:
        named = [
            (item.workload, item.system, item.users, str(sorted(item.options.items()))) for item in measure.asked()
        ]
        assert len(named) == len(set(named))


def rows(monkeypatch: pytest.MonkeyPatch, figure: str, values: dict[tuple[str, int], list[float]]) -> None:
    """Make every case return these figures, and 1.0 by default."""

    def case(system: str, users: int, *_: object, **__: object) -> dict[str, Any]:
        return {"users": users, figure: values.get((system, users), [1.0] * 3)}

    for module in (symphony, advisories):
        monkeypatch.setattr(module, "case", case)


def test_figures_that_an_earlier_rule_let_pass_are_partly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of 1.31 reached 1.05. A quarter of its effect ends at 1.23."""
    users = (64, 128, 192)
    rows(monkeypatch, "tpot_ms", {("recompute", 128): [1.07] * 3})
    assert symphony.within("recompute", (1.31, 1.9), users, 128)["verdict"] == "partly"
    rows(monkeypatch, "ttft_mean_s", {("recompute", at): [x] * 3 for at, x in zip(users, (16, 9, 1.3), strict=True)})
    assert symphony.up_to("recompute", 2.56, users, "ttft_mean_s")["verdict"] == "partly"
    assert symphony._up_to([1.02, 4.72], 1.47, (768, 1024))["verdict"] == "partly"


@pytest.mark.parametrize(
    ("measured", "verdict"), [(1.9, "holds"), (1.76, "holds within tolerance"), (1.7, "does not hold")]
)
def test_threshold_is_judged_by_the_median_of_paired_ratios(
    monkeypatch: pytest.MonkeyPatch, measured: float, verdict: str
) -> None:
    rows(monkeypatch, "norm_ms_per_token", {("recompute", 256): [measured, 0.1, 9.0]})
    assert advisories._at_least("recompute", {256: 1.8})["verdict"] == verdict


def test_seeds_of_only_one_case_are_ignored() -> None:
    few, all_seeds = {"tpot_ms": [2.0, 4.0]}, {"tpot_ms": [1.0, 2.0, 100.0]}
    assert session_figures.ratios(few, all_seeds, "tpot_ms") == [2.0, 2.0]
