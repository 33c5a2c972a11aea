"""Mooncake's claims on transfers, for the table of verdicts."""

from __future__ import annotations

from bench.evidence.chapters.transfer import NAMES, at_bandwidth, mean_ttft
from bench.evidence.claims import Claim, change, judged
from bench.evidence.measure.transfer import BANDWIDTH_LOADS, LOADS, RULES


def claims() -> list[Claim]:
    """Return the rows."""
    return [_ranking(), *(_gain(trace) for trace in LOADS), _bandwidth()]


def _ranking() -> Claim:
    loads = LOADS["conversation"]
    held = [
        qps
        for qps in loads
        if mean_ttft("conversation", "random", qps)
        > mean_ttft("conversation", "least_loaded", qps)
        > mean_ttft("conversation", "min_ttft", qps)
    ]
    found = " / ".join(f"{mean_ttft('conversation', each, 10.0):.2f}" for each in RULES)
    return Claim(
        source="Mooncake §4.2, Fig. 5",
        claim="rules that ask the caches have a lower mean TTFT than load balancing, and that than any engine by chance",
        setting=f"conversation, {loads[0]:g} to {loads[-1]:g} requests/s",
        theirs="in that order",
        ours=f"{len(held)} of {len(loads)} loads; at 10: {found} s",
        verdict=judged(reproduced=len(held) == len(loads), partly=len(held) > len(loads) // 2),
        why="four rules over eight engines; the paper has sixteen machines of eight GPUs",
    )


def _gain(trace: str) -> Claim:
    changes = {qps: mean_ttft(trace, "mooncake", qps) / mean_ttft(trace, "min_ttft", qps) - 1 for qps in LOADS[trace]}
    usual = changes[BANDWIDTH_LOADS[trace]]
    return Claim(
        source="Mooncake §4.2, Fig. 5",
        claim="weighing a transfer from the best holder cuts mean TTFT below local caches alone",
        setting=f"{NAMES[trace]}, {', '.join(f'{qps:g}' for qps in changes)} requests/s",
        theirs="−14 %" if trace == "conversation" else "no figure",
        ours=", ".join(f"{100 * each:+.0f} %" for each in changes.values()),
        verdict=judged(reproduced=max(changes.values()) < 0 and usual < -0.08, partly=usual < 0),
        why="100 Gbit/s a sender, 57,344 bytes a token; the more work there is, the more a fetched prefix saves",
    )


def _bandwidth() -> Claim:
    trace = "conversation"
    slow, usual, fast = (at_bandwidth(trace, gbps) for gbps in (24.0, 100.0, 400.0))
    return Claim(
        source="Mooncake §7.4.2, Fig. 21a",
        claim="TTFT falls with bandwidth; under 100 Gbit/s performance is significantly compromised",
        setting=f"conversation, {BANDWIDTH_LOADS[trace]:g} requests/s, 24, 100 and 400 Gbit/s",
        theirs="a sharp rise below 100 Gbit/s",
        ours=f"{slow:.2f} / {usual:.2f} / {fast:.2f} s: {change(slow, usual)} and {change(fast, usual)}",
        verdict=judged(reproduced=slow > 1.5 * usual > 1.5 * fast, partly=slow > usual > fast),
        why="a 7B model's KV is a sixth of their 70B model's, and the rule leaves transfers that do not pay",
    )
