"""Mean time to first token over the load (Mooncake Fig. 5) and over the bandwidth between engines (Fig. 21a)."""

from __future__ import annotations

from bench.evidence.plots.curves import ARRIVALS
from bench.evidence.plots.style import COLOURS, TITLES, legend_below, line, plain_numbers, trace_panels, write
from bench.evidence.store import Result


def over_load(result: Result, placements: tuple[str, ...], file: str) -> None:
    """Draw the mean TTFT of each rule."""
    figure, axes = trace_panels(ARRIVALS, "mean TTFT, s")
    for trace, panel in axes.items():
        for placement in placements:
            rows = result.where(kind="load", trace=trace, placement=placement)
            points = ((row["qps"], row["ttft_mean_s"]) for row in rows)
            line(panel, points, size=3, color=COLOURS[placement], label=placement)
        panel.set_yscale("log")
        plain_numbers(panel.yaxis)
    legend_below(figure, panel)
    write(figure, file)


def over_bandwidth(result: Result, local: dict[str, float], loads: dict[str, float], file: str) -> None:
    """Draw the mean TTFT with transfers over the sender's bandwidth. `local` is the mean without transfers."""
    figure, axes = trace_panels("bandwidth of one engine, Gbit/s", "mean TTFT, s", height_in=2.6)
    for trace, panel in axes.items():
        points = ((row["gbps"], row["ttft_mean_s"]) for row in result.where(kind="bandwidth", trace=trace))
        line(panel, points, size=3, color=COLOURS["mooncake"], label="mooncake")
        panel.axhline(local[trace], color=COLOURS["min_ttft"], linestyle=(0, (4, 2)), label="min_ttft, no transfer")
        panel.set_title(f"{TITLES[trace]}, {loads[trace]:g} requests/s")
        panel.set_xscale("log")
        plain_numbers(panel.xaxis)
        panel.set_ylim(0, 1.5)
    legend_below(figure, panel)
    write(figure, file)
