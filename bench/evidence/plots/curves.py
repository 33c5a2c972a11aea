"""Figures over the load: latency, on-time share; and hits against balance at one load."""

from __future__ import annotations

from bench.evidence.plots.style import COLOURS, DASHES, TITLES, legend_below, line, rule_name, trace_panels, write
from bench.evidence.store import Result

ARRIVALS = "mean arrivals, requests/s"


def over_load(
    result: Result, rules: list[tuple[str, str]], figure_name: str, label: str, file: str, *, top: float
) -> None:
    """Draw one figure of each rule over the mean arrival rate, a panel for each trace."""
    figure, axes = trace_panels(ARRIVALS, label)
    for trace, panel in axes.items():
        for placement, order in rules:
            rows = result.where(trace=trace, placement=placement, order=order)
            points = [(row["qps"], row[figure_name]) for row in rows if row[figure_name] is not None]
            line(
                panel,
                points,
                color=COLOURS[placement],
                linestyle=DASHES[order],
                label=rule_name(placement, order),
            )
        panel.set_ylim(0.0, top)
    legend_below(figure, panel)
    write(figure, file)


def hits_against_balance(result: Result, loads: dict[str, float], file: str) -> None:
    """Draw the share of the infinite cache's hits against the coefficient of variation (DualMap Fig. 1)."""
    figure, axes = trace_panels("load CV over engines (lower: more even)", "hit tokens, share of an infinite cache's")
    for trace, panel in axes.items():
        for row in result.where(trace=trace, qps=loads[trace]):
            placement, order = row["placement"], row["order"]
            if order not in ("fifo", "slack"):
                continue
            x, y = row["mean_cv"], row["token_hit_rate"] / row["hit_rate_infinite"]
            marker = "o" if order == "fifo" else "s"
            edge = "white" if order == "fifo" else "black"
            panel.scatter(
                x, y, color=COLOURS[placement], marker=marker, s=44, zorder=3, edgecolors=edge, linewidths=0.6,
                label=rule_name(placement, order),
            )  # fmt: skip
        panel.set_title(f"{TITLES[trace]}, {loads[trace]:g} requests/s")
        panel.set_ylim(0, 1.02)
        panel.set_xlim(left=0)
    legend_below(figure, panel)
    write(figure, file)
