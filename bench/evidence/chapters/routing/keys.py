"""Figures: the length of adaptive keys."""

from __future__ import annotations

from typing import Any

from bench.evidence.plots import bars
from bench.evidence.store import load

ENGINES = 32
PAPER = {"2": 0.452, "6": 0.149, "13": 0.378}
"""DualMap A.2.1, Fig. 6 on tool & agent: share of requests by length of the key in blocks."""
PAPER_CONVERSATION = 0.95
"""The same on conversation: share of the requests that keep two blocks."""


def shares() -> dict[str, float]:
    """Return the shares on tool & agent for the lengths that the paper names."""
    measured = load("key_length").find(trace="toolagent_like", engines=ENGINES)["shares"]
    return {length: measured.get(length, 0.0) for length in PAPER}


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    lengths = [{"blocks": blocks, "ours": ours, "paper": PAPER[blocks]} for blocks, ours in shares().items()]
    return {
        "engines": ENGINES,
        "lengths": lengths,
        "second": PAPER["6"],
        "paper_conversation": PAPER_CONVERSATION,
    }


def draw() -> None:
    """Draw the lengths."""
    bars.key_lengths(load("key_length"), ENGINES, "key_length")
