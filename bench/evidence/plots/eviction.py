"""Hits of a cache over its size under both eviction rules (RLT paper, Table 3 as a sweep)."""

from __future__ import annotations

from bench.evidence.plots.style import INK, legend_below, line, panels, write
from bench.evidence.store import Result

COLOURS = {"lru": "#0072b2", "rlt": "#d55e00"}
NAMES = {"lru": "leaf-LRU", "rlt": "RLT"}
TITLES = {"round_robin": "Groups take turns", "random": "Random order"}


def over_size(result: Result, groups: int, cycle_tokens: int, paper: dict[str, float], file: str) -> None:
    """Draw hit tokens over the cache's size, one panel per order of arrival. Crosses are the paper's Table 3."""
    figure, axes = panels(2)
    for panel, (order, title) in zip(axes, TITLES.items(), strict=True):
        for eviction, colour in COLOURS.items():
            rows = result.where(kind="table_3", order=order, eviction=eviction, groups=groups)
            points = [(row["tokens"] / 1e3, 100 * row["hit_share"]) for row in rows]
            line(panel, points, color=colour, label=NAMES[eviction])
            if order == "round_robin":
                panel.plot([200], [100 * paper[eviction]], color=colour, marker="x", markersize=7, mew=2, linestyle="")
        panel.axvline(cycle_tokens / 1e3, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
        panel.set_title(title)
        panel.set_xlabel("cache, thousands of tokens")
        panel.set_ylabel("hit tokens, % of prompt tokens")
        panel.set_ylim(0, 55)
    legend_below(figure, axes[0])
    write(figure, file)
