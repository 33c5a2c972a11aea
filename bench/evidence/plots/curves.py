"""Figures over the load: latency, on-time share; and hits against balance at one load."""

from __future__ import annotations

from bench.evidence.plots.style import COLOURS, DASHES, legend_below, panels, rule_name, write
from bench.evidence.store import Result, Row

TITLES = {"conversation": "Conversation", "toolagent_like": "Tool & agent (generated)"}


def over_load(
    result: Result, rules: list[tuple[str, str]], figure_name: str, label: str, file: str, **axis: float
) -> str:
    """Draw one figure of each rule over the mean arrival rate, a panel for each trace."""
    figure, axes = panels(2)
    for panel, (trace, title) in zip(axes, TITLES.items(), strict=True):
        for placement, order in rules:
            rows = result.where(trace=trace, placement=placement, order=order)
            points = [(row["qps"], row[figure_name]) for row in rows if row[figure_name] is not None]
            panel.plot(
                [qps for qps, _ in points],
                [value for _, value in points],
                color=COLOURS[placement],
                linestyle=DASHES[order],
                marker="o",
                markersize=2.5,
                label=rule_name(placement, order),
            )
        panel.set_title(title)
        panel.set_xlabel("mean arrivals, requests/s")
        panel.set_ylabel(label)
        panel.set_ylim(axis.get("bottom", 0.0), axis.get("top"))
    legend_below(figure, axes[0])
    return write(figure, file)


def hits_against_balance(result: Result, loads: dict[str, float], file: str) -> str:
    """Draw the share of the infinite cache's hits against the coefficient of variation (DualMap Fig. 1)."""
    figure, axes = panels(2)
    for panel, (trace, title) in zip(axes, TITLES.items(), strict=True):
        for row in result.where(trace=trace, qps=loads[trace]):
            order = str(row["order"])
            if order not in ("fifo", "slack"):
                continue
            placement = str(row["placement"])
            x, y = _number(row, "mean_cv"), _share_of_bound(row)
            marker = "o" if order == "fifo" else "s"
            edge = "white" if order == "fifo" else "black"
            panel.scatter(
                x, y, color=COLOURS[placement], marker=marker, s=44, zorder=3, edgecolors=edge, linewidths=0.6,
                label=rule_name(placement, order),
            )  # fmt: skip
        panel.set_title(f"{title}, {loads[trace]:g} requests/s")
        panel.set_xlabel("load CV over engines (lower: more even)")
        panel.set_ylabel("hit tokens, share of an infinite cache's")
        panel.set_ylim(0, 1.02)
        panel.set_xlim(left=0)
    legend_below(figure, axes[0])
    return write(figure, file)


def _share_of_bound(row: Row) -> float:
    return _number(row, "token_hit_rate") / _number(row, "hit_rate_infinite")


def _number(row: Row, name: str) -> float:
    value = row[name]
    if not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, not a number")
    return float(value)
