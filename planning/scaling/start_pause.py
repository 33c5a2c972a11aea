"""The pause after failed engine starts: each costs money, and the next one would also fail."""

from __future__ import annotations

from planning.facts.fleet_facts import STARTING, PoolFacts
from planning.facts.reason import Reason

STARTS_FAIL = "starts_fail"
FIRST_PAUSE_S = 60.0
LONGEST_PAUSE_S = 3600.0


def pause_left_s(facts: PoolFacts) -> float:
    """Return how long no engine can be started. The pause doubles with each consecutive failed start."""
    if not facts.failed_starts or facts.start_failed_s is None:
        return 0.0
    # The exponent is bounded, so that a long row of failures does not overflow.
    pause_s = min(FIRST_PAUSE_S * 2.0 ** min(facts.failed_starts - 1, 10), LONGEST_PAUSE_S)
    return max(0.0, facts.start_failed_s + pause_s - facts.now_s)


def why_no_start(facts: PoolFacts) -> Reason | None:
    """Return why no engine is started after failed starts, None if one can be."""
    if not facts.failed_starts:
        return None
    last = f": {facts.start_failure}" if facts.start_failure else ""
    starts = "the last start" if facts.failed_starts == 1 else f"the last {facts.failed_starts} starts"
    if left_s := pause_left_s(facts):
        return Reason(STARTS_FAIL, f"{starts} failed, the next is possible in {left_s:.0f} s{last}")
    if any(engine.lifecycle == STARTING for engine in facts.engines):
        return Reason(STARTS_FAIL, f"{starts} failed, so engines start one at a time{last}")
    return None
