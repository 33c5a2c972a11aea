"""Bars: goodput of each rule, and how long keys become."""

from __future__ import annotations

from bench.evidence.plots.curves import TITLES
from bench.evidence.plots.style import COLOURS, INK, panels, rule_name, write
from bench.evidence.store import Result

_BANDS = 16


def goodput(result: Result, references: dict[str, float], file: str) -> str:
    """Draw goodput by requests (bar) and by requests and tokens (tick) of every rule, with a reference line."""
    figure, axes = panels(2, height_in=3.9)
    for panel, (trace, title) in zip(axes, TITLES.items(), strict=True):
        rows = sorted(
            result.where(trace=trace), key=lambda row: (float(str(row["goodput_both_qps"])), str(row["placement"]))
        )
        names = [rule_name(str(row["placement"]), str(row["order"])) for row in rows]
        colours = [COLOURS.get(str(row["placement"]), INK) for row in rows]
        panel.barh(names, [float(str(row["goodput_qps"])) for row in rows], color=colours, height=0.62, alpha=0.45)
        panel.barh(names, [float(str(row["goodput_both_qps"])) for row in rows], color=colours, height=0.62)
        panel.axvline(references[trace], color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
        panel.set_title(title)
        panel.set_xlabel("goodput, requests/s")
        panel.grid(visible=False, axis="y")
        panel.tick_params(axis="y", labelsize=7.5, length=0)
    return write(figure, file)


def key_lengths(result: Result, engines: int, file: str) -> str:
    """Draw which share of the requests gets a key of each length (DualMap Fig. 6)."""
    figure, axes = panels(2, height_in=2.4)
    for panel, (trace, title) in zip(axes, TITLES.items(), strict=True):
        shares = result.find(trace=trace, engines=engines)["shares"]
        if not isinstance(shares, dict):
            raise TypeError("shares are no table")
        panel.bar(
            range(1, _BANDS + 1),
            [100 * shares.get(str(blocks), 0.0) for blocks in range(1, _BANDS + 1)],
            color=COLOURS["dual_map"],
        )
        panel.set_title(title)
        panel.set_xlabel("length of the key, blocks of 512 tokens")
        panel.set_ylabel("requests, %")
    return write(figure, file)
