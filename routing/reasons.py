"""Reason codes of decisions, and their words. Codes travel and are counted; words are made on read."""

from __future__ import annotations

ROUND_ROBIN = "round_robin"
LEAST_LOADED = "least_loaded"
LEAST_COST = "least_cost"
LONGEST_MATCH = "longest_match"
EQUAL_MATCH = "equal_match"
SLO_SWITCH = "slo_switch"
ONLY_ENGINE = "only_engine"
NO_ENGINE = "no_engine"

_WORDS = {
    ROUND_ROBIN: "its turn in the round",
    LEAST_LOADED: "it had the least uncached prompt tokens outstanding",
    LEAST_COST: "its waiting time plus weighted compute time was least",
    LONGEST_MATCH: "it held the longest part of the prompt among the two candidates, within the SLO",
    EQUAL_MATCH: "both candidates held the same part of the prompt; it was less loaded",
    SLO_SWITCH: "the candidate with the longer match would have missed the SLO; it was less loaded",
    ONLY_ENGINE: "it was the only engine that takes work",
    NO_ENGINE: "no engine takes work; the request waits unbound",
}


def words(code: str) -> str:
    """Return the reason in words ("… because …"); an unknown code is returned as it is."""
    return _WORDS.get(code, code)
