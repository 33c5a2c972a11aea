"""Figures around the limits of the verdicts on our own claims."""

from __future__ import annotations

from types import SimpleNamespace

from bench.evidence.chapters.automation import automation_live, health, rebalance
from bench.evidence.chapters.capacity import admission
from bench.evidence.chapters.routing import knowledge
from bench.evidence.chapters.routing.ablations import ONE_NODE
from bench.evidence.measure.routing.knowledge import AGE_LOADS, AGE_ORDERS
from bench.evidence.verdicts import ours
from bench.evidence.verdicts.verdict import NOT, PARTLY, REPRODUCED, Judged
from tests.bench.evidence.planted.plants import Patch, at, plant


@plant("ours.order", ((0.601, 0.9), REPRODUCED), ((0.599, 0.9), NOT))
@plant("ours.order", ((0.9, 0.601), REPRODUCED), ((0.9, 0.599), NOT))
def order(patch: Patch, shares: tuple[float, float]) -> Judged:
    by_order = {"fifo": 0.5, "late_last": shares[0], "slack": shares[1]}
    patch(ours, point=lambda _trace, _qps, _placement, name: {"slo_share": by_order[name]})
    return ours.order()


@plant("ours.virtual_nodes", ((9.19, 9.19), REPRODUCED), ((9.19, 9.21), PARTLY))
@plant("ours.virtual_nodes", ((9.79, 9.81), PARTLY), ((9.81, 9.81), NOT))
def virtual_nodes(patch: Patch, one_node: tuple[float, float]) -> Judged:
    """Goodput with one node per engine on both traces. With 100, it is 10."""
    patch(
        ours,
        goodput=lambda trace, label: one_node[trace == "toolagent_like"] if label == ONE_NODE else 10.0,
        goodputs_of_keys=lambda *_: [],
    )
    return ours.virtual_nodes()


@plant("ours.infeasible", ((0.01, 0.001), REPRODUCED), ((0.01, 0.0), NOT))
def infeasible(patch: Patch, gains: tuple[float, float]) -> Judged:
    patch(ours, load=lambda _: SimpleNamespace(find=lambda **_: {}))
    patch(admission, seed_gains=lambda *_, **__: list(gains))
    return ours.infeasible()


@plant("ours.learned_costs", (0.881, REPRODUCED), (0.879, PARTLY), (0.501, PARTLY), (0.5, NOT))
def learned_costs(patch: Patch, learned: float) -> Judged:
    shares = {("flat", "fixed"): 0.5, ("flat", "fitted"): learned, ("right", "fixed"): 0.9}
    patch(knowledge, cost_share=lambda written, cost, *_: shares[written, cost])
    return ours.learned_costs()


_LOST = (0.0095,) * 9


@plant(
    "ours.old_reports",
    (_LOST, REPRODUCED),
    (at(_LOST, but=0.0105), PARTLY),
    (at(_LOST, but=0.0105, count=4), PARTLY),
    (at(_LOST, but=0.0105, count=5), NOT),
)
def old_reports(patch: Patch, lost: tuple[float, ...]) -> Judged:
    cells = [(model, name) for model in AGE_LOADS for name in AGE_ORDERS]
    ignored = {cell: 1 - loss for cell, loss in zip(cells, lost, strict=True)}
    patch(knowledge, age_share=lambda *_: 1.0, ignored=lambda *cell: ignored[cell])
    return ours.old_reports()


@plant("ours.hot_prefix", ((0.601, 0.601), REPRODUCED), ((0.601, 0.599), PARTLY), ((0.599, 0.599), NOT))
def hot_prefix(patch: Patch, after: tuple[float, float]) -> Judged:
    patch(rebalance, mean=lambda _figure, *, adaptive, rebalance: after[adaptive] if rebalance else 0.5)
    return ours.hot_prefix()


@plant("ours.sick_engines", ((60.0, 0), REPRODUCED), ((60.1, 0), PARTLY), ((None, 0), NOT))
@plant("ours.sick_engines", ((60.0, 0), REPRODUCED), ((60.0, 1), PARTLY))
def sick_engines(patch: Patch, figures: tuple[float | None, int]) -> Judged:
    """The time of one kind of fault, and its lost requests."""

    def row(kind: str) -> dict[str, float | None]:
        after_s, lost = figures if kind == "crawl" else (5.0, 0)
        return {"quarantined_after_s": after_s, "lost_without_first_token": lost}

    patch(health, row=row)
    return ours.sick_engines()


@plant("ours.healthy_engines", (0, REPRODUCED), (1, NOT))
def healthy_engines(patch: Patch, wrongly: int) -> Judged:
    patch(health, healthy=lambda: [{"wrongly": ["e-001"] * wrongly}, {"wrongly": []}])
    return ours.healthy_engines()


@plant("ours.sick_engines_live", ((15.0, 0, 0), REPRODUCED), ((15.1, 0, 0), PARTLY), ((15.1, 1, 0), NOT))
@plant("ours.sick_engines_live", ((15.0, 0, 0), REPRODUCED), ((None, 0, 0), PARTLY))
@plant("ours.sick_engines_live", ((15.0, 0, 0), REPRODUCED), ((15.0, 0, 1), PARTLY))
def sick_engines_live(patch: Patch, figures: tuple[float | None, int, int]) -> Judged:
    """The time of one fault, lost requests, and healthy engines that were out."""
    out_after_s, lost, wrongly = figures
    patch(
        automation_live,
        faults=lambda: [{"kind": "hang", "out_after_s": 3.0}, {"kind": "crawl", "out_after_s": out_after_s}],
        healthy=lambda: {"wrongly": ["e-001"] * wrongly},
    )
    patch(ours, load=lambda _: SimpleNamespace(find=lambda **_: {"lost_without_first_byte": lost}))
    return ours.sick_engines_live()
