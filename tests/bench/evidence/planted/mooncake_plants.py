"""Figures around the limits of Mooncake's verdicts: scheduling, and the store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bench.evidence.chapters.automation import pd_ratio
from bench.evidence.chapters.capacity import admission
from bench.evidence.measure.automation.pd_ratio import SWEPT
from bench.evidence.measure.capacity import admission as measured
from bench.evidence.measure.capacity import effective_capacity, kv_store
from bench.evidence.measure.capacity.transfer import LOADS
from bench.evidence.store import Result
from bench.evidence.verdicts import mooncake, mooncake_store
from bench.evidence.verdicts.verdict import NOT, PARTLY, REPRODUCED, Judged
from tests.bench.evidence.planted.plants import Patch, at, plant

_BETWEEN = (1.01,) * 5


@plant(
    "mooncake.ranking",
    (_BETWEEN, REPRODUCED),
    (at(_BETWEEN, but=1.0), PARTLY),
    (at(_BETWEEN, but=1.0, count=2), PARTLY),
    (at(_BETWEEN, but=1.0, count=3), NOT),
)
@plant("mooncake.ranking", (at(_BETWEEN, but=1.99), REPRODUCED), (at(_BETWEEN, but=2.0), PARTLY))
def ranking(patch: Patch, balanced: tuple[float, ...]) -> Judged:
    """Load balancing between 2 s at random and 1 s by minimum TTFT, at each load."""
    loads = dict(zip(LOADS["conversation"], balanced, strict=True))
    others = {"random": 2.0, "min_ttft": 1.0, "mooncake": 0.9}
    patch(mooncake, mean_ttft=lambda _trace, rule, qps: others.get(rule, loads[qps]))
    return mooncake.ranking()


def _transfers(patch: Patch, changes: tuple[float, float], trace: str) -> Judged:
    """The change at the usual load, and at the others."""
    usual = mooncake.BANDWIDTH_LOADS[trace]
    patch(mooncake, change=lambda _trace, qps: changes[qps != usual])
    return mooncake.transfers(trace)


@plant("mooncake.transfers", ((-0.106, -0.01), REPRODUCED), ((-0.104, -0.01), PARTLY))
@plant("mooncake.transfers", ((-0.106, -0.001), REPRODUCED), ((-0.106, 0.0), PARTLY))
@plant("mooncake.transfers", ((-0.001, -0.01), PARTLY), ((0.0, -0.01), NOT))
def transfers(patch: Patch, changes: tuple[float, float]) -> Judged:
    """Three quarters of the paper's 14 %."""
    return _transfers(patch, changes, "conversation")


@plant("mooncake.transfers", ((-0.081, -0.01), REPRODUCED), ((-0.079, -0.01), PARTLY))
def transfers_on_tool_and_agent(patch: Patch, changes: tuple[float, float]) -> Judged:
    return _transfers(patch, changes, "toolagent_like")


@plant(
    "mooncake.bandwidth",
    ((1.51, 1.0, 0.99), REPRODUCED),
    ((1.49, 1.0, 0.99), PARTLY),
    ((1.01, 1.0, 0.99), PARTLY),
    ((1.0, 1.0, 0.99), NOT),
)
@plant("mooncake.bandwidth", ((1.51, 1.0, 0.99), REPRODUCED), ((1.51, 1.0, 1.0), NOT))
def bandwidth(patch: Patch, seconds: tuple[float, float, float]) -> Judged:
    by_gbps = dict(zip((24.0, 100.0, 400.0), seconds, strict=True))
    patch(mooncake, at_bandwidth=lambda _trace, gbps: by_gbps[gbps])
    return mooncake.bandwidth()


def _rejections(patch: Patch, rejected: tuple[int, int], settings: list[tuple[str, float]]) -> Judged:
    """Rejections with early rejection and with prediction in some settings, 80 and 70 in the others, of 100."""
    usual = {measured.AFTER_PREFILL: 100, measured.EARLY: 80, measured.UNIFORM: 70, measured.INSTANCE: 200}
    planted = usual | {measured.EARLY: rejected[0], measured.UNIFORM: rejected[1]}

    def cell(load: str, slo_s: float, mode: str) -> dict[str, int]:
        return {"rejected": (planted if (load, slo_s) in settings else usual)[mode]}

    patch(admission, cell=cell)
    return mooncake.rejections()


@plant("mooncake.rejections", ((99, 98), REPRODUCED), ((100, 98), PARTLY))
@plant("mooncake.rejections", ((99, 98), REPRODUCED), ((99, 99), PARTLY))
def rejections(patch: Patch, rejected: tuple[int, int]) -> Judged:
    return _rejections(patch, rejected, admission.SETTINGS[:1])


@plant("mooncake.rejections", ((99, 98), REPRODUCED), ((100, 98), NOT))
@plant("mooncake.rejections", ((99, 98), REPRODUCED), ((99, 99), NOT))
def rejections_everywhere(patch: Patch, rejected: tuple[int, int]) -> Judged:
    return _rejections(patch, rejected, admission.SETTINGS)


_OPPOSED, _CLOSER = (-0.41,) * 6, (-0.4,) * 6


@plant("mooncake.fluctuation", ((_OPPOSED, _CLOSER, 6), REPRODUCED), ((_OPPOSED, _CLOSER, 5), PARTLY))
@plant(
    "mooncake.fluctuation",
    ((_OPPOSED, _CLOSER, 6), REPRODUCED),
    ((at(_OPPOSED, but=-0.399), at(_CLOSER, but=-0.39), 6), PARTLY),
    (((-0.399,) * 6, (-0.39,) * 6, 6), NOT),
)
@plant(
    "mooncake.fluctuation",
    ((_OPPOSED, _CLOSER, 6), REPRODUCED),
    ((_OPPOSED, at(_CLOSER, but=-0.41), 6), PARTLY),
    ((_OPPOSED, at(_CLOSER, but=-0.41, count=2), 6), PARTLY),
    ((_OPPOSED, at(_CLOSER, but=-0.41, count=3), 6), NOT),
)
def fluctuation(patch: Patch, figures: tuple[tuple[float, ...], tuple[float, ...], int]) -> Judged:
    """Correlations with early rejection and with prediction by setting, and the settings with calmer prefills."""
    early, predicted, calmer = figures
    patch(
        admission,
        values=lambda mode, _figure: list(early if mode == measured.EARLY else predicted),
        calmer=lambda *_: calmer,
    )
    return mooncake.fluctuation()


@plant(
    "mooncake.controller",
    ((0.901, 0.6), REPRODUCED),
    ((0.899, 0.6), PARTLY),
    ((0.701, 0.6), PARTLY),
    ((0.699, 0.6), NOT),
)
def controller(patch: Patch, capacities: tuple[float, float]) -> Judged:
    """The least of the controlled days, and the best of the fixed ratios."""
    patch(
        pd_ratio,
        controlled=lambda: [{"capacity": 0.95}, {"capacity": capacities[0]}],
        fixed=lambda item: {"capacity": capacities[1] if item == 4 else 0.1},
    )
    return mooncake.controller()


@plant("mooncake.steps", (3, REPRODUCED), (4, PARTLY), (6, PARTLY), (7, NOT))
def steps(patch: Patch, turns: int) -> Judged:
    patch(pd_ratio, controlled=lambda: [{"turns": 1}, {"turns": turns}])
    return mooncake.steps()


@plant("mooncake.sweep", ((1.01, 0.99), REPRODUCED), ((1.0, 0.99), PARTLY), ((1.0, 1.0), NOT))
@plant("mooncake.sweep", ((1.01, 0.99), REPRODUCED), ((1.01, 1.0), PARTLY))
def sweep(patch: Patch, least: tuple[float, float]) -> Judged:
    """TTFT and TBT with the fewest prefill engines. With the most, both are 1 s."""

    def swept(prefill: int) -> dict[str, float]:
        ttft, tpot = least if prefill == SWEPT[0] else (1.0, 1.0)
        return {"ttft_mean_s": ttft, "tpot_mean_s": tpot}

    patch(pd_ratio, swept=swept)
    return mooncake.sweep()


_SHARES = (0.49, 0.49, 0.6, 0.95, 0.95, 0.95)


@plant("mooncake_store.capacity", (_SHARES, REPRODUCED), ((0.49, 0.51, 0.6, 0.95, 0.95, 0.95), PARTLY))
@plant("mooncake_store.capacity", (_SHARES, REPRODUCED), (at(_SHARES, but=0.949), NOT))
def capacity(patch: Patch, shares: tuple[float, ...]) -> Judged:
    """Hits with 3M tokens in the three sequences, then with 50M. Without a limit, all are 1."""
    names = kv_store.SEQUENCES
    cells = dict(zip([(size, name) for size in (3_000_000, 50_000_000) for name in names], shares, strict=True))
    number = SimpleNamespace(number=lambda *_, name, number, **__: cells.get((number, name), 1.0))
    patch(mooncake_store, load=lambda _: number)
    return mooncake_store.capacity()


@plant("mooncake_store.sharing", ((2.03, 1.01, 0.99), REPRODUCED), ((2.01, 1.01, 0.99), PARTLY))
@plant("mooncake_store.sharing", ((2.03, 1.01, 0.99), REPRODUCED), ((2.03, 1.0, 0.99), NOT))
@plant("mooncake_store.sharing", ((2.01, 1.01, 0.99), PARTLY), ((2.01, 1.01, 1.0), NOT))
def sharing(patch: Patch, figures: tuple[float, float, float]) -> Judged:
    """Hits on both traces, and prefill time on the second one. Separate memories have 1 of each."""
    first, second, prefill = figures
    shared = {"conversation": (first, 0.5), "toolagent_like": (second, prefill)}

    def find(*, name: str, number: int, **_: object) -> dict[str, float]:
        hits, seconds = shared[name] if number else (1.0, 1.0)
        return {"hit_rate": hits, "prefill_mean_s": seconds}

    patch(mooncake_store, load=lambda _: SimpleNamespace(find=find))
    return mooncake_store.sharing()


def _stored(patch: Patch, name: str, rows: list[dict[str, Any]]) -> None:
    made = Result(name=name, command="", settings={}, rows=rows)
    patch(mooncake_store, load=lambda _: made)


@plant("mooncake_store.hints", ((0.27, 0.3, 0.458, 0.6), REPRODUCED), ((0.27, 0.3, 0.457, 0.6), PARTLY))
@plant("mooncake_store.hints", ((0.27, 0.3, 0.582, 0.6), REPRODUCED), ((0.27, 0.3, 0.583, 0.6), PARTLY))
@plant("mooncake_store.hints", ((0.27, 0.271, 0.46, 0.6), REPRODUCED), ((0.27, 0.269, 0.46, 0.6), PARTLY))
@plant("mooncake_store.hints", ((0.49, 0.53, 0.54, 0.57), PARTLY), ((0.49, 0.53, 0.529, 0.57), NOT))
def hints(patch: Patch, hits: tuple[float, ...]) -> Judged:
    rows = zip(kv_store.STRATEGIES, hits, strict=True)
    _stored(patch, "kv_store", [{"kind": "hints", "name": name, "hit_rate": hit} for name, hit in rows])
    return mooncake_store.hints()


@plant("mooncake_store.layers", ((0.199, 0.199, 0.049), REPRODUCED), ((0.201, 0.199, 0.049), PARTLY))
@plant("mooncake_store.layers", ((0.199, 0.199, 0.049), REPRODUCED), ((0.199, 0.201, 0.049), PARTLY))
@plant("mooncake_store.layers", ((0.199, 0.199, 0.049), REPRODUCED), ((0.199, 0.199, 0.051), PARTLY))
@plant("mooncake_store.layers", ((0.499, 0.9, 0.049), PARTLY), ((0.501, 0.9, 0.049), NOT))
def layers(patch: Patch, figures: tuple[float, float, float]) -> Judged:
    """Prefill and TTFT with a cached prefix, over those without, and the part of TTFT that the transfer takes."""
    prefill, ttft, left = figures
    row = {"kind": "layers", "number": float(kv_store.LENGTHS[-1]), "transfer_s": 1.0, "decode_s": 0.1}
    none = row | {"ratio": kv_store.RATIOS[0], "prefill_s": 1.0, "ttft_s": 1.0, "transfer_left_s": 0.0}
    cached = {"ratio": kv_store.RATIOS[-1], "prefill_s": prefill, "ttft_s": ttft, "transfer_left_s": left * ttft}
    _stored(patch, "kv_store", [none, row | cached])
    return mooncake_store.layers()


@plant(
    "mooncake_store.pipeline",
    ((80.0, 50.0, 25.0, 0.1), REPRODUCED),
    ((80.0, 50.1, 25.0, 0.1), PARTLY),
)
@plant("mooncake_store.pipeline", ((80.0, 50.0, 25.0, 0.101), REPRODUCED), ((80.0, 50.0, 25.0, 0.102), PARTLY))
@plant("mooncake_store.pipeline", ((80.0, 50.0, 49.9, 0.1), PARTLY), ((80.0, 50.0, 50.0, 0.1), NOT))
def pipeline(patch: Patch, figures: tuple[float, ...]) -> Judged:
    """A long prompt on 1, 2, and 4 nodes, and a short one on 4."""
    short = (0.1, 0.1, figures[3])
    rows = [
        {"kind": "pipeline", "number": float(stages), "long_s": seconds, "short_s": brief}
        for stages, seconds, brief in zip(kv_store.STAGES, figures, short, strict=False)
    ]
    _stored(patch, "kv_store", rows)
    return mooncake_store.pipeline()


def _effective(patch: Patch, over: tuple[float, float, float], trace: str) -> Judged:
    """Mooncake over a prefix cache, chunked prefill, and neither, at 200 ms. At the other limits, all are alike."""
    shares = dict(zip(effective_capacity.SYSTEMS, (1.0, *(1 / ratio for ratio in over)), strict=True))
    rows = [
        {
            "kind": "capacity",
            "trace": trace,
            "system": system,
            "longest_tenth": [1.0, share, 1.0],
            "mean": [1.0, 1.0, 1.0],
        }
        for system, share in shares.items()
    ]
    _stored(patch, "effective_capacity", rows)
    return mooncake_store.effective(trace)


@plant("mooncake_store.effective", ((1.45, 3.0, 4.74), REPRODUCED), ((1.44, 3.0, 4.74), PARTLY))
@plant("mooncake_store.effective", ((1.73, 3.0, 4.74), REPRODUCED), ((1.74, 3.0, 4.74), PARTLY))
@plant("mooncake_store.effective", ((1.45, 3.0, 4.74), REPRODUCED), ((1.45, 3.0, 4.73), PARTLY))
@plant("mooncake_store.effective", ((1.45, 3.0, 7.22), REPRODUCED), ((1.45, 3.0, 7.23), PARTLY))
@plant("mooncake_store.effective", ((3.0, 1.031, 4.74), PARTLY), ((3.0, 1.029, 4.74), NOT))
def effective(patch: Patch, over: tuple[float, float, float]) -> Judged:
    return _effective(patch, over, "conversation")


@plant("mooncake_store.effective", ((1.316, 1.0, 1.0), REPRODUCED), ((1.314, 1.0, 1.0), PARTLY))
@plant("mooncake_store.effective", ((1.524, 1.0, 1.0), REPRODUCED), ((1.526, 1.0, 1.0), PARTLY))
@plant("mooncake_store.effective", ((1.031, 1.0, 1.0), PARTLY), ((1.029, 1.0, 1.0), NOT))
def effective_on_tool_and_agent(patch: Patch, over: tuple[float, float, float]) -> Judged:
    """Only the prefix cache is judged."""
    return _effective(patch, over, "toolagent_like")


@plant("mooncake_store.copies", ((6, 6, 6, 6), REPRODUCED), ((6, 6, 6, 5), PARTLY))
@plant("mooncake_store.copies", ((6, 5, 5, 5), PARTLY), ((5, 5, 5, 5), NOT))
def copies(patch: Patch, medians: tuple[int, int, int, int]) -> Judged:
    """Copies at ranks 10 and 100 on conversation, then on tool & agent. The first half of the samples has eight."""
    lines = [[8, 8, 8, copies, copies, copies] for copies in medians]
    rows = [
        {"kind": "copies", "trace": trace, "copies": lines[2 * number : 2 * number + 2]}
        for number, trace in enumerate(effective_capacity.COPY_RATES)
    ]
    _stored(patch, "effective_capacity", rows)
    return mooncake_store.copies()
