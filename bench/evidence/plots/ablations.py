"""DualMap with one thing changed: TTFT over the load (Fig. 5), goodput over the candidates, balls in bins (Fig. 15)."""

from __future__ import annotations

from bench.evidence.plots.curves import ARRIVALS
from bench.evidence.plots.style import COLOURS, INK, legend_below, line, panels, plain_numbers, trace_panels, write
from bench.evidence.store import Result

PALETTE = tuple(COLOURS[item] for item in ("cache_affinity", "least_loaded", "min_ttft", "mooncake", "dual_map"))
BIN_TITLES = {
    "uniform": "Candidates by chance",
    "100 nodes": "Rings, 100 virtual nodes",
    "1 node": "Rings, one node per engine",
}


def over_load(result: Result, labels: tuple[str, ...], file: str) -> None:
    """Draw the 90th percentile of TTFT over the load for the five configurations of Fig. 5."""
    figure, axes = trace_panels(ARRIVALS, "TTFT p90, s")
    for trace, panel in axes.items():
        for label, colour in zip(labels, PALETTE, strict=True):
            rows = result.where(kind="load", trace=trace, label=label)
            line(panel, ((row["qps"], row["ttft_p90_s"]) for row in rows), color=colour, label=label)
        panel.axhline(5.0, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
        panel.set_xticks(sorted({row["qps"] for row in result.where(kind="load", trace=trace)}))
        panel.set_yscale("log")
        plain_numbers(panel.yaxis)
    legend_below(figure, panel)
    write(figure, file)


def over_choices(
    points: dict[str, dict[str, list[tuple[int, float]]]], references: dict[str, dict[str, float]], file: str
) -> None:
    """Draw goodput over the number of candidates: trace → selection → (d, requests/s), and lines for rules over all."""
    figure, axes = trace_panels("candidates per prefix, d", "goodput, requests/s")
    for trace, panel in axes.items():
        for selection, colour in (("slo", COLOURS["dual_map"]), ("min_ttft", COLOURS["min_ttft"])):
            line(panel, points[trace][selection], size=3, color=colour, label=f"{selection} among d")
        for name, qps in references[trace].items():
            panel.axhline(qps, color=COLOURS[name], linewidth=1.0, linestyle=(0, (4, 2)), label=f"{name}, all engines")
        panel.set_ylim(bottom=0)
    legend_below(figure, panel)
    write(figure, file)


def balls(result: Result, choices: tuple[int, ...], sizes: tuple[int, ...], file: str) -> None:
    """Draw how far the fullest engine is above the mean over the number of candidates (Fig. 15)."""
    figure, axes = panels(len(BIN_TITLES), height_in=2.9)
    shades = ("#9ecae1", "#6baed6", "#3182bd", "#08519c")
    for panel, (bins, title) in zip(axes, BIN_TITLES.items(), strict=True):
        for engines, shade in zip(sizes, shades, strict=True):
            shown = [result.number("max_deviation", bins=bins, d=d, engines=engines) for d in choices]
            line(panel, zip(choices, shown, strict=True), size=3, color=shade, label=f"{engines} engines")
        panel.set_title(title)
        panel.set_xlabel("candidates per key, d")
        panel.set_xticks(list(choices))
        panel.set_yscale("log")
        plain_numbers(panel.yaxis)
        panel.set_ylim(0.4, 4000)
    axes[0].set_ylabel("fullest engine above the mean,\nrequests of 1,000")
    legend_below(figure, axes[0])
    write(figure, file)
