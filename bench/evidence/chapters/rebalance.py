"""Chapter: a prefix that becomes hot, and what more candidates for it do (DualMap §3.3, A.9)."""

from __future__ import annotations

from statistics import fmean

from bench.evidence.claims import Claim, judged, percent
from bench.evidence.measure.rebalance import ENGINES, HOT_FROM_S, HOT_SHARE, HOT_TO_S, QPS
from bench.evidence.store import Row, load

NAMES = {False: "fixed key", True: "adaptive key"}


def rows(*, adaptive: bool, rebalance: bool) -> list[Row]:
    """Return the runs of all seeds."""
    return load("rebalance").where(adaptive=adaptive, rebalance=rebalance)


def mean(figure: str, *, adaptive: bool, rebalance: bool) -> float:
    """Return the mean of a figure over the seeds."""
    return fmean(float(str(row[figure])) for row in rows(adaptive=adaptive, rebalance=rebalance))


def text() -> str:
    """Return the chapter."""
    return f"""## A hot prefix

From {HOT_FROM_S:g} to {HOT_TO_S:g} s {percent(HOT_SHARE, 0)} of {QPS:g} requests/s to {ENGINES} engines begin with one document: more than the two candidates of its prefix can prefill,
though the other engines have room. Figures are of that time, means of three seeds; DualMap with FIFO.

| | on time | TTFT P90 | hits | CV | tickets that migrated | times widened | still wide in the end |
|---|---:|---:|---:|---:|---:|---:|---:|
{_table()}

Tickets cannot help: they move within their pair only, and both are full. A longer key (adaptive) spreads what comes later and leaves
it to chance where; rebalancing sees the engines that stay hot and gives their prefix a third and a fourth candidate within seconds, and
takes them back when it has been cold for a minute.
"""


def _table() -> str:
    lines = []
    for adaptive, name in NAMES.items():
        for rebalance in (False, True):

            def of(figure: str, adaptive: bool = adaptive, rebalance: bool = rebalance) -> float:
                return mean(figure, adaptive=adaptive, rebalance=rebalance)

            lines.append(
                f"| {name}{', rebalancing' if rebalance else ''} | {percent(of('on_time'))} | {of('ttft_p90_s'):.1f} s "
                f"| {percent(of('hits'))} | {of('mean_cv'):.2f} | {of('migrations'):.0f} | {of('widened'):.0f} "
                f"| {of('still_wide'):.0f} |"
            )
    return "\n".join(lines)


def claims() -> list[Claim]:
    """Return the row of the table of verdicts."""
    found = {
        adaptive: [mean("on_time", adaptive=adaptive, rebalance=rebalance) for rebalance in (False, True)]
        for adaptive in NAMES
    }
    return [
        Claim(
            source="ours, on DualMap §3.3, A.9",
            claim="more candidates for the few prefixes that keep engines hot, and for no others",
            setting=f"one prefix with {percent(HOT_SHARE, 0)} of the traffic of {ENGINES} engines",
            theirs="two candidates for all",
            ours="; ".join(
                f"{NAMES[adaptive]}: {percent(before)} on time, {percent(after)} with rebalancing"
                for adaptive, (before, after) in found.items()
            ),
            verdict=judged(
                reproduced=all(after > before + 0.1 for before, after in found.values()),
                partly=any(after > before + 0.1 for before, after in found.values()),
            ),
            why="two candidates bound a prefix to the work of two engines, whatever is done with tickets",
        )
    ]
