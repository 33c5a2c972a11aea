"""In-flight work over time: of the fleet, and of each engine as a map."""

from __future__ import annotations

from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from bench.evidence.plots.style import COLOURS, WIDTH_IN, legend_below, trace_panels, write
from bench.evidence.store import Result

Peaks = list[list[int]]


def peaks_of(result: Result, trace: str, placement: str) -> Peaks:
    """Return for each step the in-flight tokens of each engine."""
    return list(result.find(trace=trace, placement=placement)["peaks"])


def over_time(result: Result, placements: tuple[str, ...], step_s: float, file: str) -> None:
    """Draw the fleet's in-flight tokens over time (Fig. 11 a, c)."""
    figure, axes = trace_panels("minutes after the warm-up", "in-flight tokens, millions")
    for trace, panel in axes.items():
        for placement in placements:
            peaks = peaks_of(result, trace, placement)
            at = [step * step_s / 60 for step in range(len(peaks))]
            panel.plot(at, [max(sum(step), 1) / 1e6 for step in peaks], color=COLOURS[placement], label=placement)
        panel.set_yscale("log")
    legend_below(figure, panel, columns=6)
    write(figure, file)


def maps(result: Result, placements: tuple[str, ...], step_s: float, file: str) -> None:
    """Draw engines × time for some rules on tool & agent, brighter for more in-flight work (Fig. 8)."""
    trace = "toolagent_like"
    figure = Figure(figsize=(WIDTH_IN, 1.05 * len(placements) + 0.6), layout="constrained")
    axes = figure.subplots(len(placements), 1, sharex=True)
    image = None
    for panel, placement in zip(axes, placements, strict=True):
        peaks = peaks_of(result, trace, placement)
        columns = [[step[engine] / 1e3 for step in peaks] for engine in range(len(peaks[0]))]
        extent = (0.0, len(peaks) * step_s / 60, len(columns) + 0.5, 0.5)
        image = panel.imshow(
            columns, aspect="auto", cmap="cividis", norm=PowerNorm(0.5, 0, 120), extent=extent, interpolation="nearest"
        )
        panel.set_title(placement)
        panel.set_ylabel("engine")
        panel.set_yticks([1, len(columns)])
        panel.grid(visible=False)
    axes[-1].set_xlabel("minutes after the warm-up")
    if image is not None:
        figure.colorbar(image, ax=list(axes), label="in-flight tokens, thousands", fraction=0.03)
    write(figure, file)
