"""Chapter: what was simulated, and what is not in the model."""

from __future__ import annotations

from bench.evidence.store import Row, load
from bench.evidence.traces import MAX_INPUT, TRACES, WARMUP


def text() -> str:
    """Return the chapter."""
    limits = load("limits")
    rows = []
    for trace, (file, count) in TRACES.items():
        hits = limits.number("hit_rate", trace=trace, kind="hits", cache="infinite")
        rows.append(f"| {trace} | `{file}` | first {count:,} | {100 * hits:.1f} % |")
    return f"""## Setting

The simulator runs the router that production runs, with its queue orders and its prefix index, under a virtual clock;
only engines and clients are models. Same seed, same numbers: measuring again gives the committed files bit by bit.

**Engines.** Unless a row says otherwise: 8 engines of the model `reference` (`simulator/engine_models/profiles/reference.json`), which
prefill one prompt at a time in 0.010 + 0.08·10⁻³·u + 2·10⁻⁹·u·(L − u/2) + 2·10⁻⁶·hit seconds (u uncached tokens, L prompt
tokens) and hold 1,953 blocks of 512 tokens under leaf-LRU. A hit is looked up when a prefill starts and blocks are there
when it ends. A whole prompt of 9,585 tokens takes 0.87 s, the longest allowed ({MAX_INPUT:,}) 2.03 s.

**Requests.** Timestamps are scaled linearly to the mean rate, prompts are cut to {MAX_INPUT:,} tokens, and the first
{WARMUP} requests warm the caches and count nowhere (DualMap A.3.1).

| trace | file | rows | hit tokens of an infinite cache |
|---|---|---|---|
{chr(10).join(rows)}

*Conversation* is the public trace of that name. The public *tool & agent* trace could not be had; `toolagent_like` is
generated to its published statistics, so its absolute figures are not the papers'.

**On time** means a first token within 5 s of arrival. **Goodput** is the largest mean rate, to 0.1 requests/s, at which
90 % of the requests are on time; *by both* asks the same of 90 % of their prompt tokens, so that a rule cannot win by
giving up long prompts. Refused and unfinished requests are late. Close to a cliff a tie broken otherwise moves goodput by
0.2 requests/s and on-time shares by a point; smaller differences say nothing.

**Not in this model**: network jitter, failures, several gateways, reuse of generated tokens by the next turn, and (in the
`reference` engines) decoding. *Is the simulator right?* below compares it with live processes and with another simulator.
"""


def hits(trace: str, row: Row) -> float:
    """Return a run's hits as a share of the infinite cache's."""
    bound = load("limits").number("hit_rate", trace=trace, kind="hits", cache="infinite")
    return float(str(row["token_hit_rate"])) / bound
