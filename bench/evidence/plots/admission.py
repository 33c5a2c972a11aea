"""Loads of prefill and of decode over time (Mooncake Figs 6 and 7)."""

from __future__ import annotations

from bench.evidence.plots.style import COLOURS, FAINT, INK, legend_below, panels, write
from bench.evidence.store import Row

Loads = list[list[float]]


def loads_of(row: Row) -> Loads:
    """Return (prefill load, decode load) of every step of a run that kept them."""
    return list(row["loads"])


def loads_over_time(rows: dict[str, Row], step_s: float, file: str) -> None:
    """Draw both loads of each run, one panel each, by its title."""
    figure, axes = panels(len(rows), height_in=2.9)
    for panel, (title, row) in zip(axes, rows.items(), strict=True):
        loads = loads_of(row)
        at = [step * step_s / 60 for step in range(len(loads))]
        panel.axhline(1.0, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
        panel.plot(at, [load[0] for load in loads], color=COLOURS["min_ttft"], label="prefill", linewidth=1.3)
        panel.plot(at, [load[1] for load in loads], color=COLOURS["cache_affinity"], label="decode", linewidth=1.3)
        panel.fill_between(at, [load[0] for load in loads], color=COLOURS["min_ttft"], alpha=0.12, linewidth=0)
        panel.set_title(title)
        panel.set_xlabel("minutes after the warm-up")
        panel.set_ylim(0, 1.3)
        panel.grid(color=FAINT)
    axes[0].set_ylabel("load: expected time ÷ objective")
    legend_below(figure, axes[0])
    write(figure, file)
