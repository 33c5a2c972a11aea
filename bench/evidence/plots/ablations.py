"""DualMap with one thing changed: TTFT over the load (Fig. 5), goodput over the candidates, balls in bins (Fig. 15)."""

from __future__ import annotations

from bench.evidence.plots.curves import TITLES
from bench.evidence.plots.style import COLOURS, INK, legend_below, panels, plain_numbers, write
from bench.evidence.store import Result

PALETTE = tuple(COLOURS[each] for each in ("cache_affinity", "least_loaded", "min_ttft", "mooncake", "dual_map"))
BIN_TITLES = {
    "uniform": "Candidates by chance",
    "100 nodes": "Rings, 100 virtual nodes",
    "1 node": "Rings, one node per engine",
}


def over_load(result: Result, labels: tuple[str, ...], file: str) -> str:
    """Draw the 90th percentile of TTFT over the load for the five configurations of Fig. 5."""
    figure, axes = panels(2)
    for panel, (trace, title) in zip(axes, TITLES.items(), strict=True):
        for label, colour in zip(labels, PALETTE, strict=True):
            rows = result.where(kind="load", trace=trace, label=label)
            panel.plot(
                [float(str(row["qps"])) for row in rows],
                [float(str(row["ttft_p90_s"])) for row in rows],
                color=colour,
                marker="o",
                markersize=2.5,
                label=label,
            )
        panel.axhline(5.0, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
        panel.set_title(title)
        panel.set_xlabel("mean arrivals, requests/s")
        panel.set_xticks(sorted({float(str(row["qps"])) for row in result.where(kind="load", trace=trace)}))
        panel.set_ylabel("TTFT p90, s")
        panel.set_yscale("log")
        plain_numbers(panel.yaxis)
    legend_below(figure, axes[0])
    return write(figure, file)


def over_choices(
    points: dict[str, dict[str, list[tuple[int, float]]]], references: dict[str, dict[str, float]], file: str
) -> str:
    """Draw goodput over the number of candidates: trace → selection → (d, requests/s), and lines for rules over all."""
    figure, axes = panels(2)
    for panel, (trace, title) in zip(axes, TITLES.items(), strict=True):
        for selection, colour in (("slo", COLOURS["dual_map"]), ("min_ttft", COLOURS["min_ttft"])):
            shown = points[trace][selection]
            panel.plot(
                [d for d, _ in shown],
                [qps for _, qps in shown],
                color=colour,
                marker="o",
                markersize=3,
                label=f"{selection} among d",
            )
        for name, qps in references[trace].items():
            panel.axhline(qps, color=COLOURS[name], linewidth=1.0, linestyle=(0, (4, 2)), label=f"{name}, all engines")
        panel.set_title(title)
        panel.set_xlabel("candidates per prefix, d")
        panel.set_ylabel("goodput, requests/s")
        panel.set_ylim(bottom=0)
    legend_below(figure, axes[0])
    return write(figure, file)


def balls(result: Result, choices: tuple[int, ...], sizes: tuple[int, ...], file: str) -> str:
    """Draw how far the fullest engine is above the mean over the number of candidates (Fig. 15)."""
    figure, axes = panels(len(BIN_TITLES), height_in=2.9)
    shades = ("#9ecae1", "#6baed6", "#3182bd", "#08519c")
    for panel, (bins, title) in zip(axes, BIN_TITLES.items(), strict=True):
        for engines, shade in zip(sizes, shades, strict=True):
            shown = [result.number("max_deviation", bins=bins, d=d, engines=engines) for d in choices]
            panel.plot(list(choices), shown, color=shade, marker="o", markersize=3, label=f"{engines} engines")
        panel.set_title(title)
        panel.set_xlabel("candidates per key, d")
        panel.set_xticks(list(choices))
        panel.set_yscale("log")
        plain_numbers(panel.yaxis)
        panel.set_ylim(0.4, 4000)
    axes[0].set_ylabel("fullest engine above the mean,\nrequests of 1,000")
    legend_below(figure, axes[0])
    return write(figure, file)
