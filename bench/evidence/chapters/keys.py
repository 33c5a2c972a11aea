"""Chapter: how long adaptive keys become."""

from __future__ import annotations

from bench.evidence.claims import percent
from bench.evidence.plots import bars
from bench.evidence.store import load

ENGINES = 32
PAPER = {"2": 0.452, "6": 0.149, "13": 0.378}
"""DualMap A.2.1, Fig. 6 on tool & agent: share of requests by length of the key in blocks."""
PAPER_CONVERSATION = 0.95
"""The same on conversation: share of the requests that keep two blocks."""


def shares() -> dict[str, float]:
    """Return the shares on tool & agent for the lengths that the paper names."""
    found = load("key_length").find(trace="toolagent_like", engines=ENGINES)["shares"]
    return {length: float(found.get(length, 0.0)) for length in PAPER} if isinstance(found, dict) else {}


def text() -> str:
    """Return the chapter with its picture."""
    result = load("key_length")
    picture = bars.key_lengths(result, ENGINES, "key_length")
    ours = shares()
    words = ", ".join(
        f"{100 * ours[length]:.1f} % have {length} blocks ({100 * PAPER[length]:.1f} %)" for length in PAPER
    )
    return f"""## Length of adaptive keys

![Length of keys]({picture})

*A fleet of {ENGINES}; a window of 1,000 requests; keys grow below prefixes with more than 2/n of the traffic.*

On tool & agent {words}; in brackets the paper's Fig. 6. The trace was
generated with these shares and lengths, so that they say only that keys stop growing where they should. On conversation every request keeps two blocks ({percent(PAPER_CONVERSATION, 0)} there). The
lengths depend on the size of the fleet: with 8 engines a prefix is hot only above a quarter of the traffic, and the second
hot prefix ({percent(PAPER["6"], 0)}) keeps its short key.
"""
