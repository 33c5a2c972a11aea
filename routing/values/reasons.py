"""Reason codes of decisions, and their words. Codes travel and are counted; words are made on read."""

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
LONG_MATCH = "long_match"
FEWEST_REQUESTS = "fewest_requests"
SMALLEST_TREE = "smallest_tree"
LEAST_BLOCKS = "least_blocks"
SOFTMAX = "softmax"
TWO_CHOICES = "two_choices"
RING = "ring"
RING_FULL = "ring_full"
LEAST_LATENCY = "least_latency"
HIGHEST_SCORE = "highest_score"
FREE_MATCH = "free_match"
ALL_BUSY = "all_busy"
ONLY_ENGINE = "only_engine"
MIGRATED = "migrated"
NO_ENGINE = "no_engine"
PARKED = "parked"
HELD = "held"
PULLED = "pulled"

LEAST_TBT = "least_tbt"
ONLY_DECODER = "only_decoder"
MOST_ROOM = "most_room"

OBSERVED = "observed"

ARRIVED_FIRST = "arrived_first"
EARLIEST_DEADLINE = "earliest_deadline"
HIGHEST_PRIORITY = "highest_priority"
FIRST_FEASIBLE = "first_feasible"
SHORTEST_FEASIBLE = "shortest_feasible"
ONLY_FEASIBLE = "only_feasible"
HOPELESS_LAST = "hopeless_last"
PULLED_BEST_FIT = "pulled_best_fit"
FAIR_SHARE = "fair_share"
PASSED_OVER_BOUND = "passed_over_bound"

QUEUE_FULL = "queue_full"
WAIT_EXPIRED = "wait_expired"
DEADLINE_PASSED = "deadline_passed"
HOPELESS = "hopeless"
PREFILL_OVERLOAD = "prefill_overload"
DECODE_OVERLOAD = "decode_overload"
GATEWAY_LATE = "gateway_late"

REFUSALS = (
    NO_ENGINE,
    QUEUE_FULL,
    WAIT_EXPIRED,
    DEADLINE_PASSED,
    HOPELESS,
    PREFILL_OVERLOAD,
    DECODE_OVERLOAD,
    GATEWAY_LATE,
)
"""Codes of requests that get no engine."""

_WORDS = {
    ROUND_ROBIN: "its turn in the round",
    LEAST_LOADED: "it had the least uncached prompt tokens outstanding",
    LEAST_COST: "its waiting time plus weighted compute time was least",
    LONGEST_MATCH: "it held the longest part of the prompt among the two candidates, within the SLO",
    EQUAL_MATCH: "both candidates held the same part of the prompt; it was less loaded",
    SLO_SWITCH: "the candidate with the longer match would have missed the SLO; it was less loaded",
    RANDOM: "the dice fell on it",
    AFFINITY: "the start of the prompt always goes there",
    LEAST_TTFT: "its estimated time to first token was least",
    FETCH: "its estimated time to first token was least, counting blocks to be copied from another engine",
    LONG_MATCH: "it held enough of the prompt, more than any other",
    FEWEST_REQUESTS: "loads were too far apart; it had the fewest requests",
    SMALLEST_TREE: "nobody held enough of the prompt; it had been sent the fewest blocks",
    LEAST_BLOCKS: "its pending, new and active blocks were the fewest",
    SOFTMAX: "the dice fell on it, weighted by blocks",
    TWO_CHOICES: "of two engines drawn by chance it had fewer requests",
    RING: "the ring leads the start of the prompt there",
    RING_FULL: "engines before it on the ring had more than their share of requests",
    LEAST_LATENCY: "its learned latency estimate was least",
    HIGHEST_SCORE: "its weighted score of cache and load was highest",
    FREE_MATCH: "of the engines with nothing pending it held the longest part of the prompt",
    ALL_BUSY: "every engine has pending requests; the request waits unbound",
    MIGRATED: "its first engine was overloaded, and it was expected to be on time here",
    ONLY_ENGINE: "it was the only engine that takes work",
    NO_ENGINE: "no engine takes work; the request waits unbound",
    HELD: "requests wait in one queue until an engine pulls them",
    PULLED: "it was about to be free and this request fitted it best",
    LEAST_TBT: "its expected time between tokens was least, with memory left for the request",
    ONLY_DECODER: "it was the only decode engine that takes work",
    MOST_ROOM: "no decode engine had memory left for the request; it had the most",
    OBSERVED: "somebody else sent it there; the pool only observes",
    ARRIVED_FIRST: "it had waited longest",
    EARLIEST_DEADLINE: "its deadline came first",
    HIGHEST_PRIORITY: "nobody of a higher priority waited",
    FIRST_FEASIBLE: "it had waited longest of those that could still be on time",
    SHORTEST_FEASIBLE: "it was the shortest that could be on time and made nobody before it late",
    ONLY_FEASIBLE: "it was the only one that could be on time",
    HOPELESS_LAST: "nobody who could be on time was left",
    PULLED_BEST_FIT: "of those that could be on time it cost the free engine least, set against its best engine",
    FAIR_SHARE: "its tenant had got the least of its share",
    PASSED_OVER_BOUND: "others had been granted before it for as long as the policy allows",
    PARKED: "the fleet was overloaded; the request is tried again soon",
    QUEUE_FULL: "as many tickets waited as may",
    GATEWAY_LATE: "the gateway itself was late",
    WAIT_EXPIRED: "it waited as long as it may",
    DEADLINE_PASSED: "the deadline of its SLO class passed while it waited",
    HOPELESS: "no engine could have met its time to first token any more",
    PREFILL_OVERLOAD: "its expected time to first token was over the limit",
    DECODE_OVERLOAD: "the time between tokens would have been over the limit",
}


def words(code: str) -> str:
    """Return the reason in words ("… because …"); an unknown code is returned as it is."""
    return _WORDS.get(code, code)
