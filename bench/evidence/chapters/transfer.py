"""Chapter: blocks fetched from other engines (Mooncake §4.2, §7.4.2)."""

from __future__ import annotations

from bench.evidence.claims import change
from bench.evidence.measure.transfer import BANDWIDTH_LOADS, BANDWIDTHS_GBPS, LOADS, RULES, USUAL_GBPS
from bench.evidence.plots import transfer as plots
from bench.evidence.store import load

NAMES = {"conversation": "conversation", "toolagent_like": "tool & agent"}


def mean_ttft(trace: str, placement: str, qps: float) -> float:
    """Return the mean of TTFT in seconds at 100 Gbit/s."""
    return load("transfer").number("ttft_mean_s", kind="load", trace=trace, placement=placement, qps=qps)


def at_bandwidth(trace: str, gbps: float) -> float:
    """Return the mean of TTFT in seconds with transfers at a bandwidth."""
    return load("transfer").number("ttft_mean_s", kind="bandwidth", trace=trace, gbps=gbps)


def text() -> str:
    """Return the chapter with its pictures."""
    result = load("transfer")
    lines = plots.over_load(result, RULES, "transfer")
    local = {trace: mean_ttft(trace, "min_ttft", qps) for trace, qps in BANDWIDTH_LOADS.items()}
    bandwidth = plots.over_bandwidth(result, local, BANDWIDTH_LOADS, "bandwidth")
    least, most = BANDWIDTHS_GBPS[0], BANDWIDTHS_GBPS[-1]
    return f"""## Transfers

![Mean TTFT over the load]({lines})

*Mooncake's Fig. 5: any engine, the least loaded, the least TTFT by local caches, and the least TTFT counting blocks fetched
from the best holder ({USUAL_GBPS:g} Gbit/s a sender, 57,344 bytes a token).*

{_table()}

![Mean TTFT over the bandwidth]({bandwidth})

With transfers the mean is {at_bandwidth("conversation", most):.2f} s at {most:g} Gbit/s and {at_bandwidth("conversation", least):.2f} s at
{least:g} on the conversation trace. A slow link does little harm, because the rule weighs each transfer and leaves
the slow ones; what is lost between 6 and 12 Gbit/s comes from queues on the link that an estimate without them does not see.
"""


def _table() -> str:
    rows = [
        "| trace | requests/s | random | least loaded | local caches | with transfers | change |",
        "|---|" + "---:|" * 6,
    ]
    for trace, loads in LOADS.items():
        for qps in loads:
            found = [mean_ttft(trace, placement, qps) for placement in RULES]
            cells = " | ".join(f"{each:.2f} s" for each in found)
            rows.append(f"| {NAMES[trace]} | {qps:g} | {cells} | {change(found[3], found[2])} |")
    return "\n".join(rows)
