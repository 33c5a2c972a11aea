"""Two chapters: latency over the load; affinity and balance."""

from __future__ import annotations

from bench.evidence.plots import curves
from bench.evidence.store import load

SHOWN = [
    ("round_robin", "fifo"),
    ("least_loaded", "fifo"),
    ("cache_affinity", "fifo"),
    ("min_ttft", "fifo"),
    ("preble", "fifo"),
    ("mooncake", "fifo"),
    ("dual_map", "fifo"),
    ("least_cost", "fifo"),
    ("least_cost", "slack"),
    ("central", "late_binding"),
]
LOADS = {"conversation": 10.0, "toolagent_like": 18.0}


def text() -> str:
    """Return both chapters."""
    result = load("load_curves")
    p50 = curves.over_load(result, SHOWN, "ttft_p50_s", "TTFT p50, s", "ttft_p50", top=12.0)
    p90 = curves.over_load(result, SHOWN, "ttft_p90_s", "TTFT p90, s", "ttft_p90", top=20.0)
    share = curves.over_load(result, SHOWN, "slo_share", "requests on time, share", "on_time", top=1.02)
    scatter = curves.hits_against_balance(result, LOADS, "hits_and_balance")

    def row(placement: str, order: str = "fifo") -> str:
        found = result.find(trace="conversation", placement=placement, order=order, qps=10.0)
        return f"{found['ttft_p50_s']:.2f} / {found['ttft_p90_s']:.2f} s"

    return f"""## Latency and on-time share over the load

![TTFT p50]({p50})

![TTFT p90]({p90})

![Share of requests on time]({share})

At 10 requests/s of the conversation trace the median and the 90th percentile are {row("round_robin")} under round robin,
{row("dual_map")} under `dual_map`, {row("least_cost")} under `least_cost` and {row("least_cost", "slack")} with the `slack`
order on top. Past the cliff the order keeps nine of ten requests on time where FIFO keeps none.

## Affinity and balance

![Hits against balance]({scatter})

*Circles: FIFO. Squares: `slack`. Further up and further left is better.*

DualMap's Fig. 1 asks for both a high hit rate and an even load. Under one queue per engine a low CV is no goal in itself:
`least_loaded` is the most even rule of all and among the slowest, because it computes again what another engine holds.
"""
