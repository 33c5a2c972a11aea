"""One style for all pictures: sizes, colors for color-blind readers, and reproducible files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bench.evidence.rules import FORGETTING

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "images" / "evidence"
WIDTH_IN = 8.4
TITLES = {"conversation": "Conversation", "toolagent_like": "Tool & agent (generated)"}

INK, FAINT = "#1f2933", "#d5dae1"
COLOURS = {
    "round_robin": "#8a94a3",
    "random": "#b7bec9",
    "least_loaded": "#56b4e9",
    "cache_affinity": "#e69f00",
    "min_ttft": "#009e73",
    "mooncake": "#cc79a7",
    "preble": "#a6761d",
    "sglang_cache_aware": "#f0c419",
    "dynamo_kv": "#6a3d9a",
    "dual_map": "#d55e00",
    "least_cost": "#0072b2",
    "central": "#1f2933",
}
DASHES = {
    "fifo": "-",
    "late_last": (0, (5, 1.5)),
    FORGETTING: (0, (3, 1)),
    "slack": (0, (1.5, 1.2)),
    "late_binding": (0, (4, 1, 1, 1)),
}

mpl.rcParams.update(
    {
        "svg.hashsalt": "headway",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.edgecolor": INK,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": FAINT,
        "grid.linewidth": 0.5,
        "axes.axisbelow": True,
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "legend.frameon": False,
        "legend.fontsize": 8,
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "lines.linewidth": 1.6,
    }
)


def rule_name(placement: str, order: str) -> str:
    """Return a rule's name in the document."""
    if placement == "central":
        return order
    return placement if order == "fifo" else f"{placement} + {order}"


def panels(columns: int, *, height_in: float = 3.2, width_in: float = WIDTH_IN) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels side by side."""
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    made = figure.subplots(1, columns, squeeze=False)
    return figure, list(made[0])


def trace_panels(xlabel: str, ylabel: str, *, height_in: float = 3.2) -> tuple[Figure, dict[str, Axes]]:
    """Return a figure with a panel for each trace."""
    figure, axes = panels(len(TITLES), height_in=height_in)
    for panel, title in zip(axes, TITLES.values(), strict=True):
        panel.set_title(title)
        panel.set_xlabel(xlabel)
        panel.set_ylabel(ylabel)
    return figure, dict(zip(TITLES, axes, strict=True))


def line(panel: Axes, points: Iterable[tuple[float, float]], *, size: float = 2.5, **options: Any) -> None:
    """Draw a line through (x, y) with a marker at each point."""
    drawn = list(points)
    panel.plot([x for x, _ in drawn], [y for _, y in drawn], marker="o", markersize=size, **options)


def legend_below(figure: Figure, axes: Axes, *, columns: int = 5) -> None:
    """Put one legend for all panels below them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis at 1, 2 and 5 times the powers of ten, with plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def write(figure: Figure, name: str) -> None:
    """Write the picture. The document links it as images/evidence/NAME.svg."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None, "Creator": "Headway"})
