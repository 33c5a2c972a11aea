"""Figures around the limits of the verdicts on LBGR and RLT."""

from __future__ import annotations

from bench.evidence.chapters.routing.shared_prefix import SWEEP_VALUES
from bench.evidence.measure.routing.shared_prefix import ORDER_SPEEDS, QUEUES_KEPT, TABLE_SPEEDS
from bench.evidence.verdicts import lbgr, rlt
from bench.evidence.verdicts.verdict import NOT, PARTLY, REPRODUCED, Judged
from tests.bench.evidence.planted.plants import Patch, at, plant


@plant("lbgr.table_2", ((0.282, 0.2, 0.3731), REPRODUCED), ((0.284, 0.2, 0.3731), PARTLY))
@plant("lbgr.table_2", ((0.282, 0.2, 0.3432), REPRODUCED), ((0.282, 0.2, 0.343), PARTLY))
@plant("lbgr.table_2", ((0.284, 0.234, 0.3731), PARTLY), ((0.284, 0.236, 0.3731), NOT))
def table_2(patch: Patch, figures: tuple[float, float, float]) -> Judged:
    """LBGR + RLT over the base at the speed closest to the paper and at the others, and its hits."""
    fit, other, hits = figures

    def ttft(rule: str, speed: int) -> float:
        return 1.0 if rule == lbgr.BASE else fit if speed == 7000 else other

    patch(
        lbgr, paper_speed=lambda: 7000, ttft=ttft, hits=lambda *_: hits, by_seed=lambda *_: [1.0], seconds=lambda _: ""
    )
    return lbgr.table_2(lbgr.OURS)


@plant("lbgr.turns", ((0.084, 0.084), REPRODUCED), ((0.084, 0.0845), PARTLY))
@plant("lbgr.turns", ((0.6, 0.49), PARTLY), ((0.6, 0.51), NOT))
def turns(patch: Patch, ours: tuple[float, float]) -> Judged:
    """Three quarters of the effect of 15.5 times are 11.9 times."""
    at_speed = dict(zip(ORDER_SPEEDS, ours, strict=True))
    patch(
        lbgr,
        by_seed=lambda _name, _kind, rule, speed: [at_speed[speed] if rule == lbgr.OURS else 1.0],
        mean=lambda *_: 0.3,
    )
    return lbgr.turns()


_WORKERS = len(SWEEP_VALUES["workers"])
_WITHIN = (1.019,) * _WORKERS
_HALF = _WORKERS // 2


@plant(
    "lbgr.sweep",
    (_WITHIN, REPRODUCED),
    (at(_WITHIN, but=1.021), PARTLY),
    (at(_WITHIN, but=1.021, count=_HALF), PARTLY),
    (at(_WITHIN, but=1.021, count=_HALF + 1), NOT),
)
def sweep(patch: Patch, medians: tuple[float, ...]) -> Judged:
    values = dict(zip(SWEEP_VALUES["workers"], medians, strict=True))
    patch(lbgr, mean=lambda name, _k, rule, value: values[value] if (name, rule) == ("ttft_p50_s", lbgr.OURS) else 1.0)
    return lbgr.sweep("workers")


@plant("lbgr.sweep", (1.019, REPRODUCED), (1.021, NOT))
def sweep_of_the_tail(patch: Patch, p95: float) -> Judged:
    patch(lbgr, mean=lambda name, _k, rule, _v: p95 if (name, rule) == ("ttft_p95_s", lbgr.OURS) else 1.0)
    return lbgr.sweep("workers")


@plant("lbgr.decay", ((1.051, 1.051), REPRODUCED), ((1.051, 1.049), PARTLY), ((1.049, 1.049), NOT))
def decay(patch: Patch, at_80_ms: tuple[float, float]) -> Judged:
    slow = dict(zip(lbgr.DECAY_SPEEDS, at_80_ms, strict=True))
    patch(lbgr, mean=lambda _name, _kind, _rule, value, speed: slow[speed] if value == 80.0 else 1.0)
    return lbgr.decay()


@plant("lbgr.queues_kept", ((0.99, 1.195), REPRODUCED), ((0.99, 1.205), PARTLY), ((1.0, 1.205), NOT))
def queues_kept(patch: Patch, after: tuple[float, float]) -> Judged:
    """The figures at the lowest speed and at the others. Before, all are 1 s."""
    patch(lbgr, ttft=lambda rule, speed: after[speed > TABLE_SPEEDS[0]] if rule == QUEUES_KEPT else 1.0)
    return lbgr.queues_kept()


@plant("lbgr.benchmarks", (9.23, REPRODUCED), (9.21, PARTLY))
@plant("lbgr.benchmarks", (14.69, REPRODUCED), (14.71, PARTLY))
@plant("lbgr.benchmarks", (1.031, PARTLY), (1.029, NOT))
def benchmarks(patch: Patch, ratio: float) -> Judged:
    """The mean of three benchmarks is judged, not each of them."""
    ratios = {"gsp": ratio - 0.5, "chats": ratio + 0.5, "documents": ratio}
    patch(lbgr, _over=lambda item, *_: ratios[item])
    return lbgr.benchmarks(*lbgr.BENCHMARKS["median latency"])


@plant("lbgr.benchmarks", (1.275, REPRODUCED), (1.273, PARTLY), (1.031, PARTLY), (1.029, NOT))
@plant("lbgr.benchmarks", (1.455, REPRODUCED), (1.457, PARTLY))
def benchmarks_of_throughput(patch: Patch, gain: float) -> Judged:
    """More is better, so the gain is the reciprocal."""
    patch(lbgr, _over=lambda *_: 1 / gain)
    return lbgr.benchmarks(*lbgr.BENCHMARKS["throughput"])


@plant("lbgr.benchmarks", (17.36, REPRODUCED), (17.34, PARTLY))
def benchmarks_in_turn(patch: Patch, ratio: float) -> Judged:
    patch(lbgr, _over=lambda item, *_: ratio if item == "documents in turn" else 0.0)
    return lbgr.benchmarks("documents in turn", "e2e_p50_s", 22.8)


@plant("lbgr.one_engine", ((1.581, 0.662, 0.647), REPRODUCED), ((1.58, 0.662, 0.647), PARTLY))
@plant("lbgr.one_engine", ((1.581, 0.662, 0.647), REPRODUCED), ((1.581, 0.663, 0.647), PARTLY))
@plant("lbgr.one_engine", ((1.581, 0.662, 0.647), REPRODUCED), ((1.581, 0.662, 0.648), PARTLY))
@plant("lbgr.one_engine", ((1.031, 1.0, 1.0), PARTLY), ((1.029, 1.0, 1.0), NOT))
@plant("lbgr.one_engine", ((1.0, 1.0, 0.97), PARTLY), ((1.0, 1.0, 0.972), NOT))
def one_engine(patch: Patch, ratios: tuple[float, float, float]) -> Judged:
    """RLT over leaf-LRU: throughput, median latency, median TTFT."""
    by_name = dict(zip(("throughput_rps", "e2e_p50_s", "ttft_p50_s"), ratios, strict=True))
    patch(lbgr, _over=lambda _setting, name, _rule: 1 / by_name[name])
    return lbgr.one_engine()


_LEVEL = (1.0095,) * len(TABLE_SPEEDS)


@plant(
    "lbgr.least_cost",
    (_LEVEL, REPRODUCED),
    (at(_LEVEL, but=1.0105), PARTLY),
    (at(_LEVEL, but=1.0105, count=2), PARTLY),
    (at(_LEVEL, but=1.0105, count=3), NOT),
)
def least_cost(patch: Patch, ours: tuple[float, ...]) -> Judged:
    """The better of the other two takes 1 s at every speed."""
    best = dict(zip(TABLE_SPEEDS, ours, strict=True))
    patch(
        lbgr,
        ttft=lambda rule, speed: best[speed] if rule == lbgr.BEST else 1.0 if rule == lbgr.OURS else 9.0,
        hits=lambda *_: 0.4,
        paper_speed=lambda: 7000,
    )
    return lbgr.least_cost()


@plant("rlt.table_3", ((0.1, 0.545, 0.1, 0.1), REPRODUCED), ((0.1, 0.543, 0.1, 0.1), NOT))
@plant("rlt.table_3", ((0.1, 0.439, 0.1, 0.501), PARTLY), ((0.1, 0.439, 0.1, 0.499), NOT))
@plant("rlt.table_3", ((0.1, 0.439, 0.1, 0.501), PARTLY), ((0.1, 0.44, 0.1, 0.501), NOT))
def table_3(patch: Patch, hits: tuple[float, float, float, float]) -> Judged:
    """Leaf-LRU and RLT at the paper's size, then at the nearest. Three quarters of 6.92 times are 5.44 times."""

    def share(_order: str, tokens: int, name: str) -> float:
        return hits[2 * (tokens == 191_000) + (name == "rlt")]

    patch(rlt, hit_share=share, nearest_size=lambda: 191_000, cycle_tokens=lambda: 198_400)
    return rlt.table_3()


@plant("rlt.random_order", (0.421, REPRODUCED), (0.419, PARTLY), (0.401, PARTLY), (0.4, NOT))
def random_order(patch: Patch, ours: float) -> Judged:
    patch(rlt, hit_share=lambda _order, _tokens, name: ours if name == "rlt" else 0.4)
    return rlt.random_order()


def _loop(**figures: float) -> dict[str, float]:
    return {"capacity": 64, "length": 8, "lru": 57, "opt": 1, "bound": 9.3, "rlt": 4.6} | figures


@plant("rlt.theorem_4", ((57, 1), REPRODUCED), ((58, 1), NOT))
@plant("rlt.theorem_4", ((57, 1), REPRODUCED), ((57, 2), NOT))
def theorem_4(patch: Patch, misses: tuple[int, int]) -> Judged:
    patch(rlt, loops=lambda: [_loop(), _loop(lru=misses[0], opt=misses[1])])
    return rlt.theorem_4()


@plant("rlt.theorem_6", (9.29, REPRODUCED), (9.31, NOT))
def theorem_6(patch: Patch, misses: float) -> Judged:
    patch(rlt, loops=lambda: [_loop(), _loop(rlt=misses)])
    return rlt.theorem_6()


@plant("rlt.traces", ((0.0105, 0.0105), REPRODUCED), ((0.0105, 0.0095), PARTLY), ((0.0095, 0.0095), NOT))
def traces(patch: Patch, changes: tuple[float, float]) -> Judged:
    patch(rlt, hit_changes=lambda: list(changes), goodput=lambda *_: 10.0)
    return rlt.traces()
