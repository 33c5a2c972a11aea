"""Automation of a pool: attainment and engines over time, hits at a change of the fleet, roles over a day."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from bench.evidence.plots.style import COLOURS, INK, legend_below, panels, write
from bench.evidence.store import Result, Row

ENGINES, PREFILL, DECODE = "#0072b2", "#6e40aa", "#009e73"
FIXED = "#8a94a3"


def column(row: Row, name: str, at: int) -> list[float]:
    """Return one column of a table in a row. A missing value is NaN and leaves a gap."""
    return [math.nan if line[at] is None else line[at] for line in row[name]]


def elasticity(result: Result, labels: Sequence[str], fixed: str, file: str) -> None:
    """Draw attainment (top) and engines over time of some runs, one panel per run (Fig. 12 a, c)."""
    figure, axes = panels(len(labels), height_in=3.0)
    still = result.find(label=fixed)
    for panel, label in zip(axes, labels, strict=True):
        row = result.find(label=label)
        for run, colour, name in ((still, FIXED, fixed), (row, COLOURS["dual_map"], label)):
            at = [moment / 60 for moment in column(run, "course", 0)]
            panel.plot(at, _percent(column(run, "course", 2)), color=colour, label=name, linewidth=1.2)
        panel.set_title(label)
        panel.set_xlabel("minutes")
        panel.set_ylabel("on time, %")
        panel.set_ylim(0, 104)
        _engines(panel, row)
    write(figure, file)


def _engines(panel: Axes, row: Row) -> None:
    other = panel.twinx()
    moments = [(item or 0.0) / 60 for item in column(row, "sizes", 0)]
    sizes = [item or 0.0 for item in column(row, "sizes", 1)]
    end = (column(row, "course", 0)[-1] or 0.0) / 60
    other.step([*moments, end], [*sizes, sizes[-1]], where="post", color=ENGINES, linewidth=1.2)
    other.set_ylim(0, 10)
    other.set_ylabel("engines", color=ENGINES)
    other.grid(visible=False)


def hits_at_change(result: Result, changes: Sequence[str], change_s: float, file: str) -> None:
    """Draw hits over time around a change of the fleet with rings and with modulo, one panel per change."""
    figure, axes = panels(len(changes), height_in=2.8)
    for panel, change in zip(axes, changes, strict=True):
        for name, colour in (("rings", COLOURS["dual_map"]), ("modulo", FIXED)):
            row = result.find(label=f"{name} {change}")
            at = [moment - change_s for moment in column(row, "course", 0)]
            panel.plot(at, _percent(_smooth(column(row, "course", 3))), color=colour, label=name)
        panel.axvline(0, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
        panel.set_xlim(-240, 360)
        panel.set_ylim(40, 65)
        panel.set_title(f"{change} engines")
        panel.set_xlabel("seconds after the change")
        panel.set_ylabel("hit tokens, %")
    legend_below(figure, axes[0])
    write(figure, file)


def day(result: Result, prefill: int, file: str) -> None:
    """Draw roles over the controlled day, and the share within both objectives compared with a fixed ratio (Fig. 8)."""
    figure, axes = panels(2, height_in=3.0)
    row = result.find(kind="day", controlled=True, seed=1)
    hours = [24 * moment / _end(row) for moment in column(row, "tide", 0)]
    left, right = axes
    for at, colour, name in ((1, PREFILL, "prefill"), (2, DECODE, "decode")):
        left.step(hours, column(row, "tide", at), where="post", color=colour, label=f"{name} engines")
    left.set_title("Engines and imbalance under the controller")
    left.set_xlabel("hour of the day")
    left.set_ylabel("engines")
    left.set_ylim(0, 9)
    other = left.twinx()
    other.plot(hours, column(row, "tide", 3), color=INK, linewidth=0.8, alpha=0.6)
    other.set_ylabel("f_im")
    other.set_ylim(0, 3)
    other.grid(visible=False)
    left.legend(loc="upper left")
    fixed = result.find(kind="day", controlled=False, prefill=prefill, seed=1)
    for run, colour, name in ((fixed, FIXED, f"{prefill} prefill, fixed"), (row, COLOURS["dual_map"], "controller")):
        at_hour = [24 * moment / _end(row) for moment in column(run, "course", 0)]
        right.plot(at_hour, _percent(column(run, "course", 2)), color=colour, label=name)
    right.set_title("Requests within both objectives")
    right.set_xlabel("hour of the day")
    right.set_ylabel("%")
    right.set_ylim(0, 104)
    right.legend(loc="lower center")
    write(figure, file)


def sweep(result: Result, file: str) -> None:
    """Draw capacity, TTFT and TBT over the number of prefill engines (Fig. 23)."""
    figure, axes = panels(2, height_in=2.8)
    rows = sorted(result.where(kind="sweep"), key=lambda row: row["prefill"])
    prefill = [row["prefill"] for row in rows]
    axes[0].plot(prefill, _percent([row["capacity"] for row in rows]), color=COLOURS["dual_map"], marker="o")
    axes[0].set_title("Effective request capacity")
    axes[0].set_ylabel("requests within both objectives, %")
    axes[1].plot(prefill, [row["ttft_mean_s"] for row in rows], color=PREFILL, marker="o", label="TTFT, s")
    axes[1].plot(prefill, [10 * row["tpot_mean_s"] for row in rows], color=DECODE, marker="o", label="TBT, 0.1 s")
    axes[1].set_title("Mean TTFT and TBT")
    axes[1].set_yscale("log")
    axes[1].legend()
    for panel in axes:
        panel.set_xlabel("prefill engines of 16")
    write(figure, file)


def _end(row: Row) -> float:
    return column(row, "course", 0)[-1] + 60.0


def _percent(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values]


def _smooth(values: Sequence[float], width: int = 3) -> list[float]:
    """Return running means over `width` windows."""
    means: list[float] = []
    for at in range(len(values)):
        part = [value for value in values[max(0, at - width + 1) : at + 1] if not math.isnan(value)]
        means.append(sum(part) / len(part) if part else math.nan)
    return means
