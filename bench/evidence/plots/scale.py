"""Goodput and on-time share over the size of the fleet (DualMap Fig. 13a)."""

from __future__ import annotations

from bench.evidence.plots.style import COLOURS, DASHES, legend_below, line, panels, rule_name, write
from bench.evidence.store import Result


def over_size(
    result: Result,
    rules: tuple[tuple[str, str], ...],
    sizes: tuple[int, ...],
    points: tuple[tuple[int, float], ...],
    file: str,
) -> None:
    """Draw goodput of each rule over the size, and its share on time at one load per engine."""
    figure, (left, right) = panels(2)
    for placement, order in rules:
        goodput = [
            result.number("goodput_qps", kind="goodput", engines=size, placement=placement, order=order)
            for size in sizes
        ]
        on_time = [
            result.number("slo_share", kind="load", engines=size, qps=qps, placement=placement, order=order)
            for size, qps in points
        ]
        for panel, values in ((left, goodput), (right, [100 * share for share in on_time])):
            line(
                panel,
                zip(sizes, values, strict=True),
                size=3,
                color=COLOURS[placement],
                linestyle=DASHES[order],
                label=rule_name(placement, order),
            )
    left.set_title("Goodput")
    left.set_ylabel("goodput, requests/s")
    left.set_ylim(bottom=0)
    right.set_title(f"On time at {points[0][1] / points[0][0]:g} requests/s an engine")
    right.set_ylabel("requests on time, %")
    right.set_ylim(0, 102)
    for panel in (left, right):
        panel.set_xlabel("engines")
        panel.set_xticks(list(sizes))
    legend_below(figure, left, columns=4)
    write(figure, file)
