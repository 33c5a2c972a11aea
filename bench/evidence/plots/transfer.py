"""Mean time to first token over the load (Mooncake Fig. 5) and over the bandwidth between engines (Fig. 21a)."""

from __future__ import annotations

from bench.evidence.plots.curves import TITLES
from bench.evidence.plots.style import COLOURS, legend_below, panels, plain_numbers, write
from bench.evidence.store import Result


def over_load(result: Result, placements: tuple[str, ...], file: str) -> str:
    """Draw the mean of TTFT of each rule."""
    figure, axes = panels(2)
    for panel, (trace, title) in zip(axes, TITLES.items(), strict=True):
        for placement in placements:
            rows = result.where(kind="load", trace=trace, placement=placement)
            panel.plot(
                [float(str(row["qps"])) for row in rows],
                [float(str(row["ttft_mean_s"])) for row in rows],
                color=COLOURS[placement],
                marker="o",
                markersize=3,
                label=placement,
            )
        panel.set_title(title)
        panel.set_xlabel("mean arrivals, requests/s")
        panel.set_ylabel("mean TTFT, s")
        panel.set_yscale("log")
        plain_numbers(panel.yaxis)
    legend_below(figure, axes[0])
    return write(figure, file)


def over_bandwidth(result: Result, local: dict[str, float], loads: dict[str, float], file: str) -> str:
    """Draw the mean of TTFT with transfers over what an engine can send; `local` is that without any."""
    figure, axes = panels(2, height_in=2.6)
    for panel, (trace, title) in zip(axes, TITLES.items(), strict=True):
        rows = result.where(kind="bandwidth", trace=trace)
        panel.plot(
            [float(str(row["gbps"])) for row in rows],
            [float(str(row["ttft_mean_s"])) for row in rows],
            color=COLOURS["mooncake"],
            marker="o",
            markersize=3,
            label="mooncake",
        )
        panel.axhline(local[trace], color=COLOURS["min_ttft"], linestyle=(0, (4, 2)), label="min_ttft, no transfer")
        panel.set_title(f"{title}, {loads[trace]:g} requests/s")
        panel.set_xlabel("bandwidth of one engine, Gbit/s")
        panel.set_ylabel("mean TTFT, s")
        panel.set_xscale("log")
        plain_numbers(panel.xaxis)
        panel.set_ylim(0, 1.5)
    legend_below(figure, axes[0])
    return write(figure, file)
