"""Reason codes of decisions, and their words. Codes are transmitted and counted; words are created for display."""

from __future__ import annotations

ROUND_ROBIN = "round_robin"
LEAST_LOADED = "least_loaded"
LEAST_COST = "least_cost"
LONGEST_MATCH = "longest_match"
EQUAL_MATCH = "equal_match"
SLO_SWITCH = "slo_switch"
RANDOM = "random"
AFFINITY = "affinity"
LEAST_TTFT = "least_ttft"
FETCH = "fetch"
LOAD = "load"
ADVISED = "advised"
LONG_MATCH = "long_match"
FEWEST_REQUESTS = "fewest_requests"
SMALLEST_TREE = "smallest_tree"
LEAST_BLOCKS = "least_blocks"
SOFTMAX = "softmax"
TWO_CHOICES = "two_choices"
RING = "ring"
RING_FULL = "ring_full"
SESSION_RING = "session_ring"
LEAST_LATENCY = "least_latency"
HIGHEST_SCORE = "highest_score"
FREE_MATCH = "free_match"
ALL_BUSY = "all_busy"
ONLY_ENGINE = "only_engine"
MIGRATED = "migrated"
NO_ENGINE = "no_engine"
DEFERRED = "deferred"
HELD = "held"
PULLED = "pulled"

LEAST_TPOT = "least_tpot"
ONLY_DECODER = "only_decoder"
MOST_ROOM = "most_room"

OBSERVED = "observed"

FORWARDED = "forwarded"
SESSION_REGION = "session_region"
EARLY_OFFLOAD = "early_offload"
NO_LOCAL_ROOM = "no_local_room"
REMOTE_MATCH = "remote_match"
NO_LOCAL_ENGINE = "no_local_engine"

ARRIVED_FIRST = "arrived_first"
EARLIEST_DEADLINE = "earliest_deadline"
HIGHEST_PRIORITY = "highest_priority"
FIRST_FEASIBLE = "first_feasible"
SHORTEST_FEASIBLE = "shortest_feasible"
ONLY_FEASIBLE = "only_feasible"
INFEASIBLE_LAST = "infeasible_last"
PULLED_BEST_FIT = "pulled_best_fit"
FAIR_SHARE = "fair_share"
STARVATION_LIMIT = "starvation_limit"

QUEUE_FULL = "queue_full"
WAIT_EXPIRED = "wait_expired"
DEADLINE_PASSED = "deadline_passed"
INFEASIBLE = "infeasible"
PREFILL_OVERLOAD = "prefill_overload"
DECODE_OVERLOAD = "decode_overload"
GATEWAY_LATE = "gateway_late"

REJECTIONS = (
    NO_ENGINE,
    QUEUE_FULL,
    WAIT_EXPIRED,
    DEADLINE_PASSED,
    INFEASIBLE,
    PREFILL_OVERLOAD,
    DECODE_OVERLOAD,
    GATEWAY_LATE,
)
"""Codes of requests that get no engine."""

_WORDS = {
    ROUND_ROBIN: "it was next in rotation",
    LEAST_LOADED: "it had the fewest uncached prompt tokens in flight",
    LEAST_COST: "its wait plus weighted compute time was lowest",
    LONGEST_MATCH: "it held the longer match of its two candidates, within the SLO",
    EQUAL_MATCH: "both candidates had the same match; it was less loaded",
    SLO_SWITCH: "the candidate with the longer match would have missed the SLO; it was less loaded",
    RANDOM: "it was picked at random",
    AFFINITY: "prompts with this prefix are always routed to it",
    LEAST_TTFT: "its estimated TTFT was lowest",
    FETCH: "its estimated TTFT was lowest, counting blocks to fetch from another engine",
    LOAD: "it was the cheapest, counting blocks to load from a node",
    ADVISED: "an advisory had reserved it, and no engine was clearly cheaper",
    LONG_MATCH: "its prefix match was long enough, and the longest",
    FEWEST_REQUESTS: "load imbalance exceeded the limit; it had the fewest requests",
    SMALLEST_TREE: "no prefix match was long enough; it had been sent the fewest blocks",
    LEAST_BLOCKS: "it had the fewest pending, new, and active blocks",
    SOFTMAX: "it was picked at random, weighted by blocks",
    TWO_CHOICES: "of two randomly picked engines, it had fewer requests",
    RING: "the hash ring maps the prefix to it",
    RING_FULL: "engines before it on the ring were at their load bound",
    SESSION_RING: "it came next on the hash ring of sessions, among engines with nothing pending",
    LEAST_LATENCY: "its learned latency estimate was lowest",
    HIGHEST_SCORE: "its weighted score of cache and load was highest",
    FREE_MATCH: "it held the longest match among engines with nothing pending",
    ALL_BUSY: "every engine has pending requests; the request is queued without an engine",
    MIGRATED: "its first engine was overloaded, and this one could serve it on time",
    ONLY_ENGINE: "it was the only available engine",
    NO_ENGINE: "no engine is available; the request is queued without one",
    HELD: "requests wait in the central queue until an engine pulls them",
    PULLED: "it was about to be free, and this request fit it best",
    LEAST_TPOT: "its expected TPOT was lowest, and it had memory for the request",
    ONLY_DECODER: "it was the only available decode engine",
    MOST_ROOM: "no decode engine had memory for the request; it had the most",
    OBSERVED: "another router sent it there; the pool only observes",
    FORWARDED: "another region serves it",
    SESSION_REGION: "that region held more of the prompt than any local engine",
    EARLY_OFFLOAD: "that region was much less loaded, at the cost of few cached tokens",
    NO_LOCAL_ROOM: "no local engine had capacity within an acceptable wait",
    REMOTE_MATCH: "no local engine had capacity; that region held the longest match",
    NO_LOCAL_ENGINE: "no local engine serves the model or may serve the tenant",
    ARRIVED_FIRST: "it had waited longest",
    EARLIEST_DEADLINE: "it had the earliest deadline",
    HIGHEST_PRIORITY: "no request of a higher priority waited",
    FIRST_FEASIBLE: "it had waited longest among requests that could be on time",
    SHORTEST_FEASIBLE: "it was the shortest that could be on time without making another late",
    ONLY_FEASIBLE: "it was the only one that could be on time",
    INFEASIBLE_LAST: "no queued request could be on time",
    PULLED_BEST_FIT: "among requests that could be on time, it fit the free engine best",
    FAIR_SHARE: "its tenant was furthest below its share",
    STARVATION_LIMIT: "it had reached the starvation limit",
    DEFERRED: "the fleet was overloaded; the request was deferred",
    QUEUE_FULL: "the queue was full",
    GATEWAY_LATE: "the gateway itself was late",
    WAIT_EXPIRED: "it reached the maximum wait",
    DEADLINE_PASSED: "the deadline of its SLO class passed while it waited",
    INFEASIBLE: "no engine could meet its TTFT objective",
    PREFILL_OVERLOAD: "its expected TTFT was over the limit",
    DECODE_OVERLOAD: "its expected TPOT was over the limit",
}


def words(code: str) -> str:
    """Return the reason in words ("… because …"), or an unknown code unchanged."""
    return _WORDS.get(code, code)
