"""Bars: goodput of each rule, and the lengths of keys."""

from __future__ import annotations

from bench.evidence.plots.style import COLOURS, INK, rule_name, trace_panels, write
from bench.evidence.store import Result

_BANDS = 16


def goodput(result: Result, references: dict[str, float], file: str) -> None:
    """Draw goodput by requests (bar) and by requests and tokens (tick) of every rule, with a reference line."""
    figure, axes = trace_panels("goodput, requests/s", "", height_in=3.9)
    for trace, panel in axes.items():
        rows = sorted(result.where(trace=trace), key=lambda row: (row["goodput_both_qps"], row["placement"]))
        names = [rule_name(row["placement"], row["order"]) for row in rows]
        colours = [COLOURS.get(row["placement"], INK) for row in rows]
        panel.barh(names, [row["goodput_qps"] for row in rows], color=colours, height=0.62, alpha=0.45)
        panel.barh(names, [row["goodput_both_qps"] for row in rows], color=colours, height=0.62)
        panel.axvline(references[trace], color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
        panel.grid(visible=False, axis="y")
        panel.tick_params(axis="y", labelsize=7.5, length=0)
    write(figure, file)


def key_lengths(result: Result, engines: int, file: str) -> None:
    """Draw the share of requests with a key of each length (DualMap Fig. 6)."""
    figure, axes = trace_panels("length of the key, blocks of 512 tokens", "requests, %", height_in=2.4)
    for trace, panel in axes.items():
        shares = result.find(trace=trace, engines=engines)["shares"]
        panel.bar(
            range(1, _BANDS + 1),
            [100 * shares.get(str(blocks), 0.0) for blocks in range(1, _BANDS + 1)],
            color=COLOURS["dual_map"],
        )
    write(figure, file)
