"""Figures around the limits of DualMap's verdicts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bench.evidence.chapters.automation import automation_live
from bench.evidence.chapters.capacity import admission, scale
from bench.evidence.chapters.routing import pending
from bench.evidence.measure.capacity import overload
from bench.evidence.measure.routing.ablations import FULL, WITHOUT_REBALANCE, choice_name
from bench.evidence.verdicts import dualmap, dualmap_scaling
from bench.evidence.verdicts.verdict import NOT, PARTLY, REPRODUCED, Judged
from tests.bench.evidence.planted.plants import Patch, at, plant


def _gain(patch: Patch, goodput: float, trace: str) -> Judged:
    result = SimpleNamespace(number=lambda *_, **__: goodput)
    patch(dualmap, best=lambda *_: ("preble", 10.0), load=lambda _: result)
    return dualmap.goodput_gain(trace)


@plant("dualmap.goodput_gain", (11.24, REPRODUCED), (11.22, PARTLY), (10.21, PARTLY), (10.19, NOT))
def goodput_gain(patch: Patch, goodput: float) -> Judged:
    return _gain(patch, goodput, "conversation")


@plant("dualmap.goodput_gain", (11.48, REPRODUCED), (11.46, PARTLY))
def goodput_gain_on_tool_and_agent(patch: Patch, goodput: float) -> Judged:
    return _gain(patch, goodput, "toolagent_like")


def _latency(patch: Patch, ours: float, figure: str) -> Judged:
    """The best baseline takes 1 s, least loaded 9 s."""
    times = {"dual_map": ours, "least_loaded": 9.0}
    patch(dualmap, point=lambda _trace, _qps, name, *_: {figure: times.get(name, 1.0)})
    return dualmap.latency(figure)


@plant("dualmap.latency", (0.449, REPRODUCED), (0.451, PARTLY), (0.999, PARTLY), (1.0, NOT))
def latency(patch: Patch, ours: float) -> Judged:
    return _latency(patch, ours, "ttft_p50_s")


@plant("dualmap.latency", (0.299, REPRODUCED), (0.301, PARTLY), (0.999, PARTLY), (1.0, NOT))
def latency_p90(patch: Patch, ours: float) -> Judged:
    return _latency(patch, ours, "ttft_p90_s")


@plant("dualmap.hit_rates", ((0.546, 0.885), REPRODUCED), ((0.544, 0.885), PARTLY), ((0.544, 0.883), NOT))
@plant("dualmap.hit_rates", ((0.704, 0.885), REPRODUCED), ((0.706, 0.885), PARTLY))
def hit_rates(patch: Patch, rates: tuple[float, float]) -> Judged:
    patch(
        dualmap,
        hits=lambda trace, _qps, _name: rates[trace == "toolagent_like"],
        point=lambda *_: {"slo_share": 1.0},
    )
    return dualmap.hit_rates()


@plant("dualmap.preble", (0.299, REPRODUCED), (0.301, PARTLY), (0.399, PARTLY), (0.401, NOT))
def preble(patch: Patch, ours: float) -> Judged:
    patch(dualmap, hits=lambda _trace, _qps, name: ours if name == "preble" else 0.2)
    return dualmap.preble()


@plant("dualmap.skew", ((0.79, 0.69), REPRODUCED), ((0.81, 0.69), PARTLY), ((0.81, 0.71), NOT))
def skew(patch: Patch, shares: tuple[float, float]) -> Judged:
    def point(_trace: str, qps: float, name: str) -> dict[str, float]:
        others = {"cache_affinity": shares[qps > 4], "preble": 1.0}
        return {"slo_share": others.get(name, 0.1)}

    patch(dualmap, point=point)
    return dualmap.skew()


@plant(
    "dualmap.pending_work",
    ((0.299, 0.1, 1.31), REPRODUCED),
    ((0.301, 0.1, 1.31), PARTLY),
    ((0.301, 0.299, 1.31), PARTLY),
    ((0.301, 0.301, 1.31), NOT),
)
@plant(
    "dualmap.pending_work",
    ((0.299, 0.1, 1.31), REPRODUCED),
    ((0.299, 0.1, 1.29), PARTLY),
    ((0.299, 0.1, 1.01), PARTLY),
    ((0.299, 0.1, 1.0), NOT),
)
def pending_work(patch: Patch, figures: tuple[float, float, float]) -> Judged:
    most, least, more = figures
    cvs = {12: least, 14: most, 16: most, 18: least}
    patch(dualmap, point=lambda _trace, qps, _name: {"mean_cv": cvs.get(qps, 9.0)})
    patch(pending, more_under_least_loaded=lambda: more)
    return dualmap.pending_work()


@plant(
    "dualmap.last_token",
    ((0.9, 0.96), REPRODUCED),
    ((0.9, 0.98), PARTLY),
    ((0.9, 0.99), PARTLY),
    ((0.9, 1.0), NOT),
)
def last_token(patch: Patch, ours: tuple[float, float]) -> Judged:
    def number(figure: str, *, placement: str, **_: object) -> float:
        others = {"dual_map": ours["p90" in figure], "preble": 1.0}
        return others.get(placement, 9.0)

    patch(dualmap, load=lambda _: SimpleNamespace(number=number))
    return dualmap.last_token("conversation")


def _capacity(patch: Patch, share: float, trace: str) -> Judged:
    """On time at one load. At the others, DualMap has no gain, and of the baselines, Preble has the most on time."""
    high = dualmap.LOADS[trace][-1]

    def point(_trace: str, qps: float, name: str) -> dict[str, float]:
        others = {"dual_map": share if qps == high else 0.5, "preble": 0.5}
        return {"slo_share": others.get(name, 0.2)}

    patch(dualmap, point=point)
    return dualmap.capacity(trace)


@plant("dualmap.capacity", (0.704, REPRODUCED), (0.702, PARTLY), (0.526, PARTLY), (0.524, NOT))
def capacity(patch: Patch, share: float) -> Judged:
    return _capacity(patch, share, "conversation")


@plant("dualmap.capacity", (0.97, REPRODUCED), (0.968, PARTLY), (0.526, PARTLY), (0.524, NOT))
def capacity_on_tool_and_agent(patch: Patch, share: float) -> Judged:
    """Up to 2.25 times in the abstract: three quarters of the effect are 1.94 times."""
    return _capacity(patch, share, "toolagent_like")


@plant("dualmap.cache_locality_queues", ((1.01, 1.01), REPRODUCED), ((0.99, 1.01), PARTLY), ((0.99, 0.99), NOT))
def cache_locality_queues(patch: Patch, affinity: tuple[float, float]) -> Judged:
    patch(dualmap, at=lambda _t, label, _q, figure: affinity["p90" in figure] if label == "affinity" else 1.0)
    return dualmap.cache_locality_queues()


_ORDERED = (0.1, 0.2, 0.3, 0.301, 0.49, 0.9)


@plant(
    "dualmap.least_loaded_misses",
    (_ORDERED, REPRODUCED),
    ((0.1, 0.2, 0.3, 0.299, 0.49, 0.9), PARTLY),
    ((0.199, 0.2, 0.3, 0.299, 0.49, 0.9), PARTLY),
    ((0.201, 0.2, 0.3, 0.299, 0.49, 0.9), NOT),
)
@plant("dualmap.least_loaded_misses", (_ORDERED, REPRODUCED), ((0.1, 0.2, 0.3, 0.31, 0.51, 0.9), NOT))
@plant(
    "dualmap.least_loaded_misses",
    ((0.1, 0.2, 0.3, 0.31, 0.49, 0.51), REPRODUCED),
    ((0.1, 0.2, 0.3, 0.31, 0.49, 0.495), PARTLY),
)
def least_loaded_misses(patch: Patch, figures: tuple[float, ...]) -> Judged:
    """Hits from the fewest to the most expected, then CV of the least loaded candidate and of affinity."""
    names = ("least_loaded", "min_ttft", WITHOUT_REBALANCE, "affinity")
    hits = dict(zip(names, figures, strict=False)) | {FULL: 0.5}
    cvs = {"least_loaded": figures[4], "affinity": figures[5]}
    patch(dualmap, at=lambda _t, label, _q, figure: hits[label] if "hit" in figure else cvs.get(label, 0.5))
    return dualmap.least_loaded_misses()


@plant("dualmap.switch", ((-0.14, -0.139), REPRODUCED), ((-0.14, -0.138), PARTLY))
@plant("dualmap.switch", ((-0.021, 0.0), PARTLY), ((-0.019, 0.0), NOT))
def switch(patch: Patch, changes: tuple[float, float]) -> Judged:
    """Three quarters of the paper's 18.5 % at both loads."""

    def at_load(_trace: str, label: str, qps: float, _figure: str) -> float:
        return 1.0 + changes[qps == dualmap._PAST] if label == WITHOUT_REBALANCE else 1.0

    patch(dualmap, at=at_load)
    return dualmap.switch()


@plant("dualmap.rebalance", ((-0.085, 0.0), REPRODUCED), ((-0.0845, 0.0), PARTLY))
@plant("dualmap.rebalance", ((-0.021, 0.0), PARTLY), ((-0.019, 0.0), NOT))
def rebalance(patch: Patch, changes: tuple[float, float]) -> Judged:
    """Three quarters of the paper's 11.3 %."""
    patch(dualmap, at=lambda _t, label, qps, _f: 1.0 + changes[qps == dualmap._PAST] if label == FULL else 1.0)
    return dualmap.rebalance()


@plant("dualmap.two_choices", ((9.9, 9.0), REPRODUCED), ((9.9, 8.8), PARTLY), ((10.1, 8.8), NOT))
def two_choices(patch: Patch, deviations: tuple[float, float]) -> Judged:
    """The deviations with two and three candidates in the largest fleet. In the others, both are 1."""

    def deviation(_bins: str, d: int, size: int) -> float:
        return 100.0 if d == 1 else deviations[d - 2] if size == dualmap.BIN_SIZES[-1] else 1.0

    patch(dualmap, deviation=deviation)
    return dualmap.two_choices()


@plant("dualmap.more_candidates", ((9.81, 9.81), REPRODUCED), ((9.79, 9.81), PARTLY), ((9.79, 9.79), NOT))
def more_candidates(patch: Patch, two: tuple[float, float]) -> Judged:
    goodputs = {choice_name("slo", 2): two[0], choice_name("min_ttft", 2): two[1]}
    patch(dualmap, goodput=lambda _trace, name: goodputs.get(name, 10.0))
    return dualmap.more_candidates()


@plant("dualmap.growth", (3.61, REPRODUCED), (3.59, PARTLY), (2.81, PARTLY), (2.79, NOT))
def growth(patch: Patch, times: float) -> Judged:
    patch(scale, goodput=lambda size, _name: times if size == 32 else 1.0)
    return dualmap.growth()


_AHEAD = (10.21, 10.21, 10.21)


@plant(
    "dualmap.larger",
    (_AHEAD, REPRODUCED),
    (at(_AHEAD, but=10.19), PARTLY),
    (at(_AHEAD, but=10.19, count=2), PARTLY),
    (at(_AHEAD, but=10.19, count=3), NOT),
)
def larger(patch: Patch, ours: tuple[float, ...]) -> Judged:
    """Ahead by more than a fifth of a request per second of the best of all baselines, which is Preble."""
    sizes = dict(zip(dualmap.SIZES, ours, strict=True))
    others = {"preble": 10.0}
    patch(
        scale,
        goodput=lambda size, name: sizes[size] if name == "dual_map" else others.get(name, 1.0),
        on_time=lambda *_: 0.9,
    )
    return dualmap.larger()


@plant("dualmap_scaling.scaling_up", ((4, 239.5), REPRODUCED), ((3, 239.5), PARTLY))
@plant("dualmap_scaling.scaling_up", ((4, 239.5), REPRODUCED), ((4, 240.5), PARTLY))
@plant("dualmap_scaling.scaling_up", ((4, 599.5), PARTLY), ((4, 600.5), NOT))
def scaling_up(patch: Patch, figures: tuple[int, float]) -> Judged:
    patch(
        dualmap_scaling,
        plans=lambda _: [{"target": 5, "engines": 4}, {"target": 4 + figures[0], "engines": 4}],
        recovered_s=lambda _: figures[1],
        on_time=lambda *_: 1.0,
    )
    return dualmap_scaling.scaling_up()


@plant(
    "dualmap_scaling.scaling_down",
    ((4, 0.901), REPRODUCED),
    ((4, 0.899), PARTLY),
    ((4, 0.801), PARTLY),
    ((4, 0.799), NOT),
)
@plant("dualmap_scaling.scaling_down", ((4, 0.901), REPRODUCED), ((5, 0.901), PARTLY))
def scaling_down(patch: Patch, figures: tuple[int, float]) -> Judged:
    """The size at the end, and the least share on time of the windows with at least 20 requests."""
    windows = [(0.0, 20, figures[1]), (10.0, 30, 1.0), (20.0, 19, 0.0)]
    patch(dualmap_scaling, course=lambda *_: windows, row=lambda _: {"sizes": [(0.0, 8), (9.0, figures[0])]})
    return dualmap_scaling.scaling_down()


@plant("dualmap_scaling.remap", (1.099, REPRODUCED), (1.101, PARTLY), (1.249, PARTLY), (1.251, NOT))
@plant("dualmap_scaling.remap", (0.901, REPRODUCED), (0.899, PARTLY), (0.751, PARTLY), (0.749, NOT))
def remap(patch: Patch, share: float) -> Judged:
    patch(dualmap_scaling, plans=lambda _: [{"remap": {"share": moved, "ideal": 1.0}} for moved in (1.0, share)])
    return dualmap_scaling.remap()


@plant("dualmap_scaling.caches_survive", ((0.49, 0.49), REPRODUCED), ((0.49, 0.51), PARTLY))
@plant("dualmap_scaling.caches_survive", ((1.0, 0.99), PARTLY), ((1.0, 1.0), NOT))
def caches_survive(patch: Patch, rings: tuple[float, float]) -> Judged:
    patch(dualmap_scaling, dip=lambda name, change: rings[change == "8→7"] if name == "rings" else 1.0)
    return dualmap_scaling.caches_survive()


@plant("dualmap_scaling.live", ((0.9, 0.9, 5), REPRODUCED), ((0.9, 0.899, 5), PARTLY), ((0.899, 0.899, 5), NOT))
@plant("dualmap_scaling.live", ((0.9, 0.9, 5), REPRODUCED), ((0.9, 0.9, 4), PARTLY))
def live(patch: Patch, figures: tuple[float, float, int]) -> Judged:
    row: dict[str, Any] = {
        "on_time_after_recovery": figures[0],
        "on_time_while_shrinking": figures[1],
        "fewest_engines": 4,
        "most_engines": figures[2],
    }
    patch(automation_live, scaled=lambda: row)
    return dualmap_scaling.live()


@plant("dualmap_scaling.bottleneck", ((0.0051, 0.0), PARTLY), ((0.0049, 0.0), NOT))
@plant("dualmap_scaling.bottleneck", ((0.0051, -0.0049), PARTLY), ((0.0051, -0.0051), NOT))
def bottleneck(patch: Patch, gains: tuple[float, float]) -> Judged:
    """The gain at the first load, and at the others."""

    def shares(_kind: str, *, on: bool, qps: float, answers: int) -> list[float]:
        return [0.5 + (gains[(qps, answers) != overload.CONTENTION[0]] if on else 0.0)]

    patch(admission, seed_shares=shares)
    return dualmap_scaling.bottleneck()
