"""Figures around the bounds of SkyWalker's verdicts. The bounds are those of `bench.regions.policies`."""

from __future__ import annotations

from types import SimpleNamespace

from bench.evidence.verdicts import skywalker
from bench.evidence.verdicts.verdict import NOT, PARTLY, REPRODUCED, Judged
from bench.regions.policies import CLAIMS
from bench.report import Target
from tests.bench.evidence.planted.plants import Patch, at, plant

_CLAIMS = {claim.key: claim for claim in CLAIMS}


def _bound(key: str, value: float) -> skywalker.Bound:
    claim = _CLAIMS[key]
    assert claim.bound is not None
    return skywalker.Bound(value, Target(value=value, op=claim.op, target=claim.bound).holds)


def _targets(patch: Patch, keys: tuple[str, ...], *runs: tuple[float, ...]) -> None:
    """Plant the values of bounds in the report and, if there are two runs, in that of the later seeds."""
    reports = [{key: _bound(key, value) for key, value in zip(keys, values, strict=True)} for values in runs]
    figures = {f"fig10_over_local_{kind}_6": 0.95 for kind in ("chat", "trees")}
    patch(
        skywalker,
        report=lambda name: SimpleNamespace(targets=reports["again" in name and -1], figures=figures),
    )


_GKE = tuple(f"5.1_over_gke_{case}" for case in skywalker.BALANCED)
_OVER_GKE = (1.43,) * 4


@plant("skywalker.bounded", (_OVER_GKE, REPRODUCED), (at(_OVER_GKE, but=1.42), PARTLY))
@plant("skywalker.bounded", ((1.03, 1.03, 1.03, 1.021), PARTLY), ((1.03, 1.03, 1.03, 1.019), NOT))
def bounded(patch: Patch, values: tuple[float, ...]) -> Judged:
    _targets(patch, _GKE, values)
    return skywalker.bounded(_GKE, direction=1.02)


_P50 = ("5.1_p50_over_round_robin_tot", "5.1_p90_over_round_robin_tot")


@plant("skywalker.bounded", ((0.576, 0.233), REPRODUCED), ((0.577, 0.233), PARTLY), ((0.577, 0.234), NOT))
def bounded_from_above(patch: Patch, values: tuple[float, float]) -> Judged:
    _targets(patch, _P50, values)
    return skywalker.bounded(_P50)


_OURS = ("ours_over_skywalker_chat_12", "p90_ours_over_skywalker_tot")


@plant("skywalker.twice", (((1.06, 1.1), (1.06, 1.1)), REPRODUCED), (((1.06, 1.1), (1.06, 1.11)), PARTLY))
@plant("skywalker.twice", (((1.06, 1.1), (1.06, 1.1)), REPRODUCED), (((1.06, 1.1), (1.05, 1.1)), PARTLY))
@plant("skywalker.twice", (((1.06, 1.11), (1.06, 1.1)), PARTLY), (((1.05, 1.11), (1.06, 1.1)), NOT))
def twice(patch: Patch, runs: tuple[tuple[float, float], tuple[float, float]]) -> Judged:
    _targets(patch, _OURS, *runs)
    return skywalker.twice(_OURS)


@plant("skywalker.hit_rates", ((0.629, 0.859), REPRODUCED), ((0.631, 0.859), PARTLY), ((0.631, 0.857), NOT))
def hit_rates(patch: Patch, rates: tuple[float, float]) -> Judged:
    paper = {"least_load_tot": 0.59, "skywalker_tot": 0.898}
    figures = {f"hits_{name}": rate for name, rate in zip(paper, rates, strict=True)}
    patch(skywalker, report=lambda _: SimpleNamespace(figures=figures))
    return skywalker.hit_rates(paper)


@plant("skywalker.hash_gap", ((0.204, 0.126, 0.11), REPRODUCED), ((0.204, 0.124, 0.11), PARTLY))
@plant("skywalker.hash_gap", ((0.206, 0.124, 0.11), PARTLY), ((0.206, 0.124, 0.111), NOT))
def hash_gap(patch: Patch, gaps: tuple[float, float, float]) -> Judged:
    cases = (*skywalker.CHAT, "mixed")
    figures = {f"hits_pooled_bound_{case}": 0.6 for case in cases}
    figures |= {f"hits_consistent_hash_{case}": 0.6 - gap for case, gap in zip(cases, gaps, strict=True)}
    patch(skywalker, report=lambda _: SimpleNamespace(figures=figures))
    return skywalker.hash_gap()


@plant("skywalker.pushing", ((1.1, 0.125), REPRODUCED), ((1.09, 0.125), PARTLY), ((1.09, 0.126), NOT))
def pushing(patch: Patch, values: tuple[float, float]) -> Judged:
    _targets(patch, ("fig9_spp_over_bp_micro_20k", "fig9_p90_spp_over_bp_micro_20k"), values)
    return skywalker.pushing("20k")


@plant("skywalker.no_gain", ((1.06, 1.06), REPRODUCED), ((1.061, 1.061), PARTLY))
@plant("skywalker.no_gain", ((0.98, 0.98), REPRODUCED), ((0.979, 0.979), PARTLY))
@plant("skywalker.no_gain", ((0.979, 1.06), PARTLY), ((0.979, 1.061), NOT))
def no_gain(patch: Patch, values: tuple[float, float]) -> Judged:
    _targets(patch, ("fig9_spp_over_bp_micro_60k", "fig9_no_gain_micro_60k"), values)
    return skywalker.no_gain()


_SKEWED = (1.07,) * 6


@plant("skywalker.skew", (_SKEWED, REPRODUCED), (at(_SKEWED, but=1.069), PARTLY))
@plant("skywalker.skew", (at(_SKEWED, but=1.069, count=5), PARTLY), (at(_SKEWED, but=1.069, count=6), NOT))
def skew(patch: Patch, values: tuple[float, ...]) -> Judged:
    _targets(patch, tuple(f"fig10_over_local_{case}" for case in skywalker.SKEWED), values)
    return skywalker.skew()


@plant("skywalker.days", ((0.385, 0.3, 0.41), REPRODUCED), ((0.384, 0.3, 0.41), PARTLY))
@plant("skywalker.days", ((0.384, 0.3, 0.405), PARTLY), ((0.384, 0.3, 0.404), NOT))
def days(patch: Patch, savings: tuple[float, float, float]) -> Judged:
    """The paper's five regions with broad and with sharp peaks, and another case."""
    names = ("saving_5_regions_paper_broad", "saving_5_regions_paper_sharp", "saving_3_regions_equal_broad")
    figures = dict(zip(names, savings, strict=True)) | {"on_demand_a": 2.0}
    patch(skywalker, report=lambda _: SimpleNamespace(figures=figures))
    return skywalker.days()


@plant("skywalker._counted", ((True, True), REPRODUCED), ((True, False), PARTLY), ((False, False), NOT))
def counted(_patch: Patch, met: tuple[bool, bool]) -> Judged:
    return skywalker._counted(list(met))
