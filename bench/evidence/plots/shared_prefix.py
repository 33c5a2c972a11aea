"""Generated shared prefixes: TTFT over the speed of the engines, and the sweeps of the LBGR paper as small panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.evidence.plots.style import COLOURS, INK, WIDTH_IN, legend_below, line, panels, plain_numbers, write

STYLES: dict[str, tuple[str, str | tuple[float, tuple[float, float]]]] = {
    "random + LRU": (COLOURS["random"], "-"),
    "cache-aware + LRU": (COLOURS["sglang_cache_aware"], "-"),
    "cache-aware + RLT": (COLOURS["sglang_cache_aware"], (0, (4, 1.5))),
    "LBGR + LRU": (COLOURS["mooncake"], "-"),
    "LBGR + RLT": (COLOURS["mooncake"], (0, (4, 1.5))),
    "LBGR, standing queues kept, + RLT": (COLOURS["dynamo_kv"], (0, (4, 1.5))),
    "min_ttft + RLT": (COLOURS["min_ttft"], (0, (4, 1.5))),
    "least_cost + LRU": (COLOURS["least_cost"], "-"),
}
"""Color and dash of each rule: dashed if the engines evict by RLT."""

_COLUMNS = 4

Point = Callable[[str, float], float]
"""Returns a figure of a rule at a value."""


def over_speed(
    rules: tuple[str, ...],
    speeds: tuple[int, ...],
    ttft: Point,
    hit_percent: Point,
    paper: Mapping[str, float],
    file: str,
) -> None:
    """Draw median TTFT and hits over the engines' speed. Dotted lines are the paper's medians of some rules."""
    figure, (left, right) = panels(2, height_in=3.4)
    for rule in rules:
        _line(left, rule, speeds, ttft)
        _line(right, rule, speeds, hit_percent)
    for rule, seconds in paper.items():
        left.axhline(seconds, color=STYLES[rule][0], linewidth=0.9, linestyle=":")
        left.annotate(f"paper, {rule}", (speeds[-1], seconds), ha="right", va="bottom", fontsize=7, color=INK)
    left.set_yscale("log")
    plain_numbers(left.yaxis)
    left.set_ylabel("TTFT p50, s")
    right.set_ylabel("hit tokens, % of prompt tokens")
    right.set_ylim(0, 52)
    for panel in (left, right):
        panel.set_xlabel("speed of prefill of one engine, tokens/s")
        panel.set_xticks(list(speeds), [f"{speed:,}" for speed in speeds])
    legend_below(figure, left, columns=4)
    write(figure, file)


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """One small panel: the values on its axis, its rules, and the figure of a rule at a value."""

    title: str
    values: tuple[float, ...]
    rules: tuple[str, ...]
    point: Point


def sweeps(shown: Sequence[Sweep], label: str, file: str, *, log: bool) -> None:
    """Draw one figure over each varied parameter, one panel per parameter."""
    lines = -(-len(shown) // _COLUMNS)
    figure = Figure(figsize=(WIDTH_IN, 2.1 * lines + 0.5), layout="constrained")
    axes: list[Axes] = list(figure.subplots(lines, _COLUMNS, squeeze=False).flat)
    for panel, sweep in zip(axes, shown, strict=False):
        for rule in sweep.rules:
            _line(panel, rule, sweep.values, sweep.point)
        panel.set_title(sweep.title, fontsize=8)
        panel.tick_params(labelsize=7)
        if log:
            panel.set_yscale("log")
            plain_numbers(panel.yaxis)
        else:
            panel.set_ylim(bottom=0)
        if sweep.values[-1] >= 16 * sweep.values[0]:
            panel.set_xscale("log", base=2)
        panel.set_xticks(list(sweep.values), [_tick(value) for value in sweep.values])
        panel.minorticks_off()
    for panel in axes[len(shown) :]:
        panel.set_visible(False)
    for panel in axes[::_COLUMNS]:
        panel.set_ylabel(label, fontsize=8)
    legend_below(figure, axes[0], columns=3)
    write(figure, file)


def _tick(value: float) -> str:
    return f"{value / 1000:.0f}k" if value >= 10_000 else f"{value:g}"


def _line(panel: Axes, rule: str, values: Sequence[float], point: Point) -> None:
    colour, dash = STYLES[rule]
    points = [(value, point(rule, value)) for value in values]
    line(panel, points, color=colour, linestyle=dash, linewidth=1.3, label=rule)
